from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from louver.formats.dtypes import ELEMENT_TYPES, ElementType, element_type, raw_bits


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("f16", "f16"),
        ("tf32", "tf32"),
        ("float16", "f16"),
        ("torch.bfloat16", "bf16"),
        ("F8_E4M3", "e4m3"),
        ("BF16", "bf16"),
        ("I8", "s8"),
        (np.float16, "f16"),
        (np.dtype("<f4"), "f32"),
        (ml_dtypes.bfloat16, "bf16"),
        (np.dtype(ml_dtypes.float8_e5m2), "e5m2"),
        (np.int32, "s32"),
        (ELEMENT_TYPES["u8"], "u8"),
    ],
)
def test_names_and_dtypes_find_their_element_type(named: object, name: str) -> None:
    assert element_type(named).name == name


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "int8", "uint8"])
def test_torch_dtypes_find_their_element_type(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert element_type(getattr(torch, name)) == element_type(name)


@pytest.mark.parametrize("bad", ["f99", "float64", np.float64, np.dtype(">f2"), float, 16, None, ""])
def test_anything_else_is_refused_with_the_list(bad: object) -> None:
    with pytest.raises(
        ValueError,
        match=r"one of f16, bf16, e4m3, e5m2, e2m1, e2m3, e3m2, f32, tf32, s8, u8, s4x2, u4x2, s32, s64, bool, .*got",
    ):
        element_type(bad)


@pytest.mark.parametrize("element", [each for each in ELEMENT_TYPES.values() if each.numbers == 1], ids=str)
def test_sizes_and_zeros_agree_with_numpy(element: ElementType) -> None:
    assert element.numpy.itemsize == element.bytes == element.bits // 8 == element.bits_dtype.itemsize
    minus_one = raw_bits(np.array([-1], np.int64).astype(element.numpy))
    one = raw_bits(np.array([1], element.numpy))
    if element.floating:
        assert minus_one & element.magnitude_mask == one
        assert element.negative_zero == int(raw_bits(np.array([-0.0], element.numpy))[0])
    else:
        assert element.negative_zero is None
        assert element.magnitude_mask == (1 << element.bits) - 1


def test_raw_bits_is_a_view() -> None:
    x = np.arange(6, dtype=np.float16).reshape(2, 3)
    raw_bits(x)[1, 2] = 0x3C00
    assert x[1, 2] == 1


def test_a_size_that_numpy_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="half has 8 bits, but float16 holds 16"):
        ElementType("half", np.dtype(np.float16), 8, True)
