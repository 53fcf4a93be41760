"""Rounds numbers of a wider type to element types of tile IR, once and to nearest even."""

from __future__ import annotations

from typing import Any

import numpy as np

from louver.formats.dtypes import element_type
from louver.ir.interpret.values import Array
from louver.isa.convert import FP8_MAX
from louver.isa.floating import f32_to_odd

LIMITS = {element_type(name).numpy: limit for name, limit in FP8_MAX.items()}
"""The largest finite value of each 8-bit float type. These types saturate."""


def rounded(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to a floating-point dtype, to nearest even.

    8-bit floats saturate, others become infinite.
    """
    with np.errstate(all="ignore"):
        if values.dtype == to or to.itemsize >= 4:
            return values.astype(to)
        limit = LIMITS.get(to)
        wide = values.astype(np.float64)
        clipped = wide if limit is None else np.clip(wide, -limit, limit)
        return np.asarray(f32_to_odd(clipped)).astype(to)


def towards_zero(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to a floating-point dtype, towards zero.

    Infinity stays, except in 8-bit floats, which saturate.
    """
    nearest = np.atleast_1d(rounded(values, to))
    wide = np.atleast_1d(values).astype(np.float64)
    with np.errstate(all="ignore"):
        too_far = (np.abs(nearest.astype(np.float64)) > np.abs(wide)) & ~np.isnan(wide)
    # The next number towards zero has the raw bits minus one.
    bits = nearest.view(f"u{to.itemsize}") - too_far.astype(f"u{to.itemsize}")
    return bits.view(to).reshape(np.shape(values))


def integers(values: Array, to: np.dtype[Any]) -> Array:
    """Round floating-point values to integers, towards zero. Values out of range saturate, and NaN becomes 0."""
    limits = np.iinfo(to)
    wide = np.trunc(values.astype(np.float64))
    # The largest int64 is not a float64, so the code compares and selects.
    safe = np.where((wide > limits.min) & (wide < float(limits.max)), wide, 0.0).astype(to)
    return np.where(wide >= float(limits.max), limits.max, np.where(wide <= limits.min, limits.min, safe)).astype(to)
