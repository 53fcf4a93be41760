"""Quantized weights as numbers, against float64 one element at a time."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from louver.models.roles import Scale
from louver.models.scaled import Factors, numbers

WEIGHTS = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8)

GRIDS: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((6, 10), (6, 10), ()),
    ((6, 10), (6, 10), (1,)),
    ((6, 10), (1, 10), (6,)),
    ((6, 10), (1, 10), (6, 1)),
    ((6, 10), (6, 1), (1, 10)),
    ((7, 11), (3, 4), (3, 3)),
    ((7, 64), (1, 32), (7, 2)),
    ((5, 6, 9), (1, 6, 9), (5,)),
    ((5, 6, 9), (1, 6, 1), (5, 1, 9)),
    ((5, 6, 9), (1, 1, 9), (5, 6, 1)),
    ((5, 7, 9), (1, 4, 2), (5, 2, 5)),
)
"""Shape of a weight, block, and shape of the stored scales."""


def random_scales(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    if dtype in (np.uint8, ml_dtypes.float8_e8m0fnu):
        return np.asarray(rng.integers(110, 140, shape, dtype=np.uint8)).view(dtype)
    return np.asarray(rng.uniform(1e-3, 3, shape)).astype(dtype)


def random_weight(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    bits = rng.integers(0, 256, shape, dtype=np.uint8)
    return bits.view(dtype)


def oracle(weight: Any, scales: Any, block: tuple[int, ...]) -> Any:
    """Each element in float64. scales: with the weight's axes."""
    out = np.empty(weight.shape)
    for index in np.ndindex(*weight.shape):
        scale = scales[tuple(i // b for i, b in zip(index, block, strict=True))]
        number = 2.0 ** (int(scale) - 127) if scales.dtype == np.uint8 else float(scale)
        out[index] = float(weight[index]) * number
    return out


@pytest.mark.parametrize(("shape", "block", "stored"), GRIDS)
@pytest.mark.parametrize("dtype", WEIGHTS)
@pytest.mark.parametrize(
    "scale", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e8m0fnu, np.uint8, ml_dtypes.float8_e4m3fn]
)
def test_numbers(
    scale: Any,
    dtype: Any,
    shape: tuple[int, ...],
    block: tuple[int, ...],
    stored: tuple[int, ...],
    rng: np.random.Generator,
) -> None:
    weight, scales = random_weight(rng, shape, dtype), random_scales(rng, stored, scale)
    counts = tuple(-(-size // b) for size, b in zip(shape, block, strict=True))
    expected = oracle(weight, scales.reshape(counts), block).astype(np.float32)
    factors = Factors.of(scales, Scale("w_scale", block), shape)
    matrix = weight.reshape(-1, shape[-1])
    whole = numbers(matrix, factors.at(range(len(matrix)), range(shape[-1])))
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(whole.reshape(shape), expected)
    # Parts: rows in steps, and columns that begin inside a block.
    for rows, columns in ((range(1, 2), range(3, 9)), (range(0, 6, 2), range(1, 4)), (range(2, 5), range(9))):
        part = matrix[rows.start : rows.stop : rows.step, columns.start : columns.stop]
        wanted = whole[rows.start : rows.stop : rows.step, columns.start : columns.stop]
        np.testing.assert_array_equal(numbers(part, factors.at(rows, columns)), wanted)


def test_products_out_of_range() -> None:
    """They overflow to infinity and underflow to zero without a warning; the exponent 255 is NaN."""
    factors = Factors.of(np.array([2.0**127, 2.0**-140, 1.0], np.float32), Scale("s", (1, 2)), (3, 2))
    weight = np.array([[100, 1], [1e-3, 0.5], [np.nan, -0.0]], ml_dtypes.float8_e5m2)
    got = numbers(weight, factors.at(range(3), range(2)))
    assert np.isposinf(got[0, 0]) and got[0, 1] == np.float32(2.0**127)
    assert np.isnan(got[2, 0]) and np.signbit(got[2, 1])
    nan = Factors.of(np.array([255], np.uint8), Scale("s", (1, 2)), (1, 2))
    assert np.isnan(nan.at(range(1), range(2))).all()


@pytest.mark.parametrize(
    ("scales", "block", "message"),
    [
        (
            np.ones((3, 2), np.float32),
            (3, 4),
            r"s: .*\[6, 10\] in blocks of \[3, 4\] has scales of shape \[2, 3\], got \[3, 2\]",
        ),
        (np.ones(10, np.float32), (1, 10), r"has scales of shape \[6, 1\], got \[10\]"),
        (np.ones((6, 2), np.float32), (1, 4), r"has scales of shape \[6, 3\], got \[6, 2\]"),
        (np.ones(6, np.float32), (6, 10), r"has scales of shape \[1, 1\], got \[6\]"),
        (np.ones(6, np.int32), (1, 10), "s: scales are floating-point numbers, or bytes of exponents, got int32"),
    ],
)
def test_scales_that_do_not_fit(scales: Any, block: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Factors.of(scales, Scale("s", block), (6, 10))
