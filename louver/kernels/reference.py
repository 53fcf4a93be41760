"""The reference path: the same products with NumPy, for machines without a GPU and for checks in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import element_type
from louver.isa.floating import f32_to_odd
from louver.kernels.numerics import LARGEST

Array = NDArray[Any]


def product(a: Array, b: Array, bias: Array | None, out: np.dtype[Any]) -> Array:
    """`a [M, K] @ b [K, N] (+ bias [M] by rows)`, accumulated as the kernels do and rounded once to `out`: [M, N].

    Floating-point operands accumulate in float32, integers (with an integer bias) exactly, wrapped to int32. 8-bit outputs
    saturate.
    """
    if np.issubdtype(a.dtype, np.integer):
        # float64 holds the sums of fewer than 2^37 products of 8-bit integers.
        exact = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)
        if bias is not None:
            exact += bias.astype(np.int64)[:, None]
        return _rounded(exact.astype(np.int32).astype(np.float64), out)
    y = a.astype(np.float32) @ b.astype(np.float32)
    if bias is not None:
        y += bias.astype(np.float32)[:, None]
    return _rounded(y.astype(np.float64), out)


def _rounded(exact: NDArray[np.float64], out: np.dtype[Any]) -> Array:
    """float64 values rounded once to `out`."""
    if out.itemsize == 4:
        return exact.astype(out)
    largest = LARGEST.get(element_type(out).name)
    clipped = exact if largest is None else np.clip(exact, -largest, largest)
    with np.errstate(over="ignore"):
        return f32_to_odd(clipped).astype(out)


def exact_product(a: Array, b: Array, bias: Array | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product in float64, and Σ|a||b| (+ |bias|), which bounds its rounding errors: both [M, N]."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    reference = wide_a @ wide_b
    magnitude = np.abs(wide_a) @ np.abs(wide_b)
    if bias is not None:
        wide_bias = bias.astype(np.float64)[:, None]
        reference, magnitude = reference + wide_bias, magnitude + np.abs(wide_bias)
    return reference, magnitude
