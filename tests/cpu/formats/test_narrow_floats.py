"""Floats of 6 and 4 bits: a byte each, pruned, compressed and kept in files; products on the host."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.dtypes import NARROW_FLOATS, element_type

TYPES = {"e2m1": (4, 6.0), "e2m3": (6, 7.5), "e3m2": (6, 28.0)}
"""Bits of a number, and the greatest one."""


def codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 1 << TYPES[name][0], shape).astype(np.uint8).view(element_type(name).numpy)


def test_the_types() -> None:
    assert set(NARROW_FLOATS) == set(TYPES)
    for name, (bits, greatest) in TYPES.items():
        element = element_type(name)
        assert (element.bits, element.width, element.floating) == (8, bits, True)
        every = np.arange(1 << bits, dtype=np.uint8).view(element.numpy).astype(np.float64)
        assert np.isfinite(every).all() and every.max() == greatest == -every.min()
        assert element.largest_magnitude == element.magnitude_mask == (1 << (bits - 1)) - 1


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("columns", [48, 50])
def test_two_of_four_stay(rng: np.random.Generator, name: str, columns: int) -> None:
    w = codes(rng, name, (9, columns))
    pruned = louver.prune(w, "2:4")
    wide, got = w.astype(np.float64), np.asarray(pruned).astype(np.float64)
    for row, start in itertools.product(range(9), range(0, columns, 4)):
        group = wide[row, start : start + 4]
        kept = sorted(range(len(group)), key=lambda each: (-abs(group[each]), each))[:2]
        expected = [value if at in kept else 0 for at, value in enumerate(group)]
        np.testing.assert_array_equal(got[row, start : start + 4], expected)


@pytest.mark.parametrize("name", TYPES)
def test_compressed_and_kept_in_a_file(rng: np.random.Generator, name: str, tmp_path: Path) -> None:
    w = louver.prune(codes(rng, name, (20, 104)), "2:4")
    s = louver.compress(w, "2:4")
    assert s.dtype.name == name and louver.check(w, "2:4").ok
    np.testing.assert_array_equal(s.dense().astype(np.float32), w.astype(np.float32))
    path = tmp_path / "w.safetensors"
    louver.save(path, {"w": s})
    back = louver.load(path)["w"]
    assert isinstance(back, louver.SparseTensor) and back.dtype == s.dtype
    np.testing.assert_array_equal(back.values.view(np.uint8), s.values.view(np.uint8))
    np.testing.assert_array_equal(back.indices, s.indices)


@pytest.mark.parametrize("name", TYPES)
def test_bits_that_no_number_has(rng: np.random.Generator, name: str) -> None:
    bits, numpy = TYPES[name][0], element_type(name).numpy
    bad = np.zeros((4, 8), np.uint8)
    bad[2, 3] = 0x80
    message = f"a byte of {name} holds a number in its low {bits} bits and zeros above, got other bits there"
    for call in (louver.prune, louver.check, louver.compress):
        with pytest.raises(ValueError, match=message):
            call(bad.view(numpy), "2:4")
    s = louver.compress(codes(rng, name, (4, 8)), "2:4", method="magnitude")
    other = louver.SparseTensor(
        s.pattern, s.dtype, s.shape, s.axis, (s.values.view(np.uint8) | 0x40).view(numpy), s.indices
    )
    with pytest.raises(ValueError, match=message):
        other.validate()


def test_too_many_numbers_of_a_group() -> None:
    with pytest.raises(ValueError, match="2:4"):
        louver.compress(np.ones((2, 16), ml_dtypes.float4_e2m1fn), "2:4")


@pytest.mark.parametrize("a", TYPES)
@pytest.mark.parametrize("b", [*TYPES, "e4m3", "e5m2", "u8"])
def test_products_on_the_host(rng: np.random.Generator, a: Any, b: Any) -> None:
    w, own = louver.prune(codes(rng, a, (24, 60)), "2:4"), a if b == "u8" else b
    x = codes(rng, own, (5, 60)) if own in TYPES else rng.integers(-3, 4, (5, 60)).astype(element_type(b).numpy)
    s, exact = louver.compress(w, "2:4"), x.astype(np.float64) @ np.asarray(w).astype(np.float64).T
    given = x.view(np.uint8) if b == "u8" else x
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.testing.assert_array_equal(louver.linear(given, s, out_dtype="f32"), exact)
        np.testing.assert_array_equal(louver.matmul(s, given.T, out_dtype="f32"), exact.T)
        assert louver.linear(given, s).dtype == ml_dtypes.bfloat16


def test_other_dense_operands(rng: np.random.Generator) -> None:
    s = louver.compress(codes(rng, "e2m3", (8, 16)), "2:4", method="magnitude")
    with pytest.raises(ValueError, match="one element type, got f16 and e2m3"):
        louver.linear(np.ones((2, 16), np.float16), s)
    with pytest.raises(ValueError, match="give one number a byte, as ml_dtypes.float4_e2m1fn does"):
        element_type("torch.float4_e2m1fn_x2")


@pytest.mark.parametrize("pattern", ["2:8", "2:4@16", "2:8@V64"])
def test_patterns_that_no_gpu_multiplies(rng: np.random.Generator, pattern: str) -> None:
    s = louver.compress(codes(rng, "e3m2", (64, 32)), pattern, method="magnitude")
    x = codes(rng, "e3m2", (3, 32))
    with pytest.warns(louver.NoKernelWarning, match="and of e3m2 for 2:4, got"):
        y = louver.linear(x, s, out_dtype="f32")
    np.testing.assert_array_equal(y, x.astype(np.float64) @ np.asarray(s).astype(np.float64).T)


@pytest.mark.parametrize("name", [*TYPES, "e4m3", "e5m2"])
@pytest.mark.parametrize("shape", [(3, 130), (2, 5, 64), (4, 0), (7,)])
def test_blocks_are_quantized(rng: np.random.Generator, name: Any, shape: tuple[int, ...]) -> None:
    w = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)
    w[..., :3] = 0
    values, factors = louver.quantize_blocks(w, name)
    assert values.shape == shape and factors.shape == (*shape[:-1], -(-shape[-1] // 64)) and factors.dtype == np.uint8
    numpy = element_type(name).numpy
    most = float(ml_dtypes.finfo(numpy).max)
    for row in np.ndindex(shape[:-1]):
        for block, byte in enumerate(factors[row]):
            columns = slice(64 * block, 64 * block + 64)
            greatest = np.abs(w[row][columns]).max()
            power = np.floor(np.log2(greatest)) - np.floor(np.log2(most)) if greatest else 0
            assert byte == power + 127
            expected = np.clip(w[row][columns] / 2.0**power, -most, most).astype(numpy)
            np.testing.assert_array_equal(values[row][columns].view(np.uint8), expected.view(np.uint8))
    assert (values[..., :3].astype(np.float32) == 0).all()


def test_powers_end_with_the_bytes() -> None:
    values, factors = louver.quantize_blocks([[2.0**-150] * 64 + [1e300] * 64], "e2m1")
    assert factors.tolist() == [[0, 254]]
    assert float(values[0, 0]) == 0 and float(values[0, -1]) == 6


@pytest.mark.parametrize(
    ("array", "dtype", "message"),
    [
        (np.float32(1), "e2m1", "along the last axis, got a scalar"),
        ([1, np.inf], "e2m1", "got infinities or NaN"),
        ([1, 2], "f16", "one of e4m3, e5m2, e2m1, e2m3, e3m2 .*got 'f16'"),
    ],
)
def test_blocks_that_are_not_quantized(array: Any, dtype: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        louver.quantize_blocks(array, dtype)
