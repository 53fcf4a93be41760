"""`louver.sparsify` of host arrays, by NumPy: the definition of what its kernels write."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.compress import compress
from louver.formats.dtypes import ElementType, raw_bits
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor, empty_rows, frozen
from louver.isa.convert import FP8_MAX, HALF_NAN, Fp8, FromF32, Half, fp8_from_f32
from louver.library.streaming.record import LEAST_SCALE, Activation

PATTERN = Pattern(2, 4)

ROWS = "rows"
"""A scale for each row, that of its largest activation."""


def sparsified(
    x: NDArray[Any], stored: ElementType, activation: Activation | None, scale: float | str | None
) -> tuple[SparseTensor, NDArray[np.float32] | None]:
    """The sparse tensor of activations [..., K], and the scales of its rows if `scale` is `ROWS`.

    Kept are the two of four elements with the largest activations, which are not rounded yet. Of equals, the lowest
    index comes first. NaN counts as infinity. The activation, times the f32 reciprocal of the scale, is rounded once.
    """
    before = x if activation is None else _positive(x)
    kept = compress(before, PATTERN, method="magnitude")
    if activation is None and stored == kept.dtype:
        return kept, None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        numbers = _activated(np.asarray(kept.values), activation)
        scales = None
        if scale is not None:
            if scale == ROWS:
                scales = _row_scales(_activated(before.reshape(kept.rows, -1), activation), cast("Fp8", stored.name))
            else:
                scales = np.float32(scale)
            numbers = numbers * (np.float32(1) / scales)
        values = empty_rows(kept.rows, kept.kept, stored)
        raw_bits(values)[...] = _rounded(numbers, stored)
    s = SparseTensor(PATTERN, stored, kept.shape, kept.axis, frozen(values), kept.indices, library=kept.library)
    return s, scales.reshape(-1) if isinstance(scales, np.ndarray) else None


def _activated(before: NDArray[Any], activation: Activation | None) -> NDArray[np.float32]:
    """The activations of elements that are positive already, if the activation makes them so."""
    numbers = before.astype(np.float32)
    return numbers if activation is None else numbers * numbers


def _positive(x: NDArray[Any]) -> NDArray[Any]:
    """max(x, 0); NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        above = x > 0
    found = np.where(above, raw_bits(x), 0).astype(raw_bits(x).dtype)
    return np.where(np.isnan(x.astype(np.float32)), HALF_NAN, found).astype(np.uint16).view(x.dtype)


def _row_scales(numbers: NDArray[np.float32], to: Fp8) -> NDArray[np.float32]:
    """The scales [rows, 1]. NaNs do not count."""
    # `fmax` would keep a signalling NaN.
    sizes = np.where(np.isnan(numbers), np.float32(0), np.abs(numbers))
    largest = sizes.max(axis=1, keepdims=True, initial=np.float32(0))
    return np.maximum(largest / np.float32(FP8_MAX[to]), np.float32(LEAST_SCALE))


def _rounded(numbers: NDArray[np.float32], stored: ElementType) -> NDArray[Any]:
    """Raw bits of numbers, to nearest even; 8-bit types saturate."""
    if stored.bits == 8:
        return fp8_from_f32(cast("Fp8", stored.name), numbers)
    return FromF32(cast("Half", stored.name)).compute(np.ascontiguousarray(numbers).view(np.uint32))[0]
