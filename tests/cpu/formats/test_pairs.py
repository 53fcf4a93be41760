"""Pairs of 4-bit integers: packing, 2:4 of pairs, files, and products by the reference path, against exact integers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type

RANGES = {"s4x2": (-8, 8), "u4x2": (0, 16)}


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(*RANGES[dtype], shape)


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_packing_is_exact(rng: np.random.Generator, dtype: Any, axis: int) -> None:
    numbers = drawn(rng, dtype, (6, 10))
    packed = louver.pack_pairs(numbers, dtype, axis=axis)
    assert element_type(packed.dtype).name == dtype and packed.shape[axis] * 2 == numbers.shape[axis]
    np.testing.assert_array_equal(louver.unpack_pairs(packed, axis=axis), numbers)


def test_the_first_number_is_in_the_low_bits() -> None:
    assert louver.pack_pairs([[1, -2]]).view(np.uint8).tolist() == [[0xE1]]
    assert louver.pack_pairs(np.array([3, 15]).astype(ml_dtypes.uint4), "u4x2").view(np.uint8).tolist() == [0xF3]


@pytest.mark.parametrize(
    ("numbers", "dtype", "message"),
    [
        ([1, 2, 3], "s4x2", r"two neighbours along the axis, got shape \[3\] and axis -1: append a zero"),
        ([1, 8], "s4x2", "numbers of s4x2 are from -8 to 7, got 1 to 8"),
        ([-1, 8], "u4x2", "numbers of u4x2 are from 0 to 15, got -1 to 8"),
        ([0.5, 1], "s4x2", "pairs are made of integers, got float64"),
        ([0, 1], "s8", "pairs are of s4x2 or u4x2, got 's8'"),
    ],
)
def test_what_is_not_packed(numbers: Any, dtype: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        louver.pack_pairs(numbers, dtype)


def test_only_pairs_are_unpacked() -> None:
    with pytest.raises(ValueError, match="an element type is one of s4x2, u4x2"):
        louver.unpack_pairs(np.zeros(4, np.int8))


@pytest.mark.parametrize("dtype", RANGES)
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("columns", [48, 52])
def test_two_of_four_pairs_stay(rng: np.random.Generator, dtype: Any, norm: Any, columns: int) -> None:
    numbers = drawn(rng, dtype, (9, columns))
    pruned = louver.unpack_pairs(louver.prune(louver.pack_pairs(numbers, dtype), "2:4", norm=norm))
    for row, got in zip(numbers, pruned, strict=True):
        for start in range(0, columns, 8):
            pairs = [row[start + 2 * each : start + 2 * each + 2] for each in range(4) if start + 2 * each < columns]
            sizes = [int(np.abs(pair).sum() if norm == "l1" else (pair**2).sum()) for pair in pairs]
            kept = sorted(range(len(pairs)), key=lambda each: (-sizes[each], each))[:2]
            expected = [pair if index in kept else 0 * pair for index, pair in enumerate(pairs)]
            np.testing.assert_array_equal(got[start : start + 8], np.concatenate(expected))


@pytest.mark.parametrize("dtype", RANGES)
def test_compressed_and_kept_in_a_file(rng: np.random.Generator, dtype: Any, tmp_path: Path) -> None:
    w = louver.prune(louver.pack_pairs(drawn(rng, dtype, (20, 104)), dtype), "2:4")
    s = louver.compress(w, "2:4")
    assert s.dtype.name == dtype and s.shape == (20, 52) and louver.check(w, "2:4").ok
    np.testing.assert_array_equal(np.asarray(s).view(np.uint8), w.view(np.uint8))
    louver.save(tmp_path / "w.safetensors", {"w": s, "dense": np.ones(3, np.float32)})
    back = louver.load(tmp_path / "w.safetensors")["w"]
    assert isinstance(back, louver.SparseTensor) and back.dtype == s.dtype
    np.testing.assert_array_equal(np.asarray(back).view(np.uint8), w.view(np.uint8))


def test_a_group_with_too_many_pairs() -> None:
    with pytest.raises(ValueError, match="2:4"):
        louver.compress(louver.pack_pairs(np.ones((2, 16), np.int64)), "2:4")


def test_transposable_masks_are_of_single_numbers() -> None:
    with pytest.raises(ValueError, match="transposable masks are of numbers of their own, got pairs of s4x2"):
        louver.prune(louver.pack_pairs(np.ones((8, 16), np.int64)), "2:4", transposable=True)


@pytest.mark.parametrize("a", RANGES)
@pytest.mark.parametrize("b", RANGES)
def test_products_are_exact(rng: np.random.Generator, a: Any, b: Any) -> None:
    m, n, k = 24, 5, 120
    w = louver.prune(louver.pack_pairs(drawn(rng, a, (m, k)), a), "2:4")
    x, bias = drawn(rng, b, (n, k)), rng.integers(-99, 99, m).astype(np.int32)
    s, packed, exact = louver.compress(w, "2:4"), louver.pack_pairs(x, b), x @ louver.unpack_pairs(w).T.astype(int)
    bytes_ = packed.view(np.int8 if b == "s4x2" else np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dense in (packed, bytes_):
            y = louver.linear(dense, s, bias)
            assert y.dtype == np.int32
            np.testing.assert_array_equal(y, exact + bias)
            np.testing.assert_array_equal(louver.matmul(s, dense.T), exact.T)
            np.testing.assert_array_equal(louver.linear(dense, s, out_dtype="f32"), exact.astype(np.float32))


def test_operands_that_pairs_do_not_take(rng: np.random.Generator) -> None:
    s = louver.compress(louver.pack_pairs(drawn(rng, "s4x2", (8, 32)), "s4x2"), "2:4", method="magnitude")
    with pytest.raises(ValueError, match="one element type, got f16 and s4x2"):
        louver.linear(np.ones((2, 16), np.float16), s)
    with pytest.raises(ValueError, match="K"):
        louver.linear(np.ones((2, 32), np.int8), s)


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (ml_dtypes.int4, "pack two of them in a byte with louver.pack_pairs"),
        (ml_dtypes.uint4, "pack two of them in a byte with louver.pack_pairs"),
    ],
)
def test_types_that_no_tensor_has(dtype: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        louver.compress(np.zeros((4, 8), dtype), "2:4")
