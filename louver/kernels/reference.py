"""The reference path: the same products with NumPy, for machines without a GPU and for checks in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def product(a: Array, b: Array, bias: Array | None, out: np.dtype[Any]) -> Array:
    """`a [M, K] @ b [K, N] (+ bias [M] by rows)`, accumulated in float32 and rounded once to `out`: [M, N]."""
    y = a.astype(np.float32) @ b.astype(np.float32)
    if bias is not None:
        y += bias.astype(np.float32)[:, None]
    with np.errstate(over="ignore"):
        return y.astype(out)


def exact_product(a: Array, b: Array, bias: Array | None = None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The product in float64, and Σ|a||b| (+ |bias|), which bounds its rounding errors: both [M, N]."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    reference = wide_a @ wide_b
    magnitude = np.abs(wide_a) @ np.abs(wide_b)
    if bias is not None:
        wide_bias = bias.astype(np.float64)[:, None]
        reference, magnitude = reference + wide_bias, magnitude + np.abs(wide_bias)
    return reference, magnitude
