"""Numbers in the element types of tile IR: rounded once, to nearest even, from a wider type."""

from __future__ import annotations

from typing import Any

import numpy as np

from louver.formats.dtypes import element_type
from louver.ir.interpret.values import Array
from louver.isa.convert import FP8_MAX
from louver.isa.floating import f32_to_odd

LIMITS = {element_type(name).numpy: limit for name, limit in FP8_MAX.items()}
"""Greatest finite value of the 8-bit floats, which saturate."""


def rounded(values: Array, to: np.dtype[Any]) -> Array:
    """Floating-point values as `to`, a floating-point dtype, to nearest even; 8-bit floats saturate, others become infinite."""
    with np.errstate(all="ignore"):
        if values.dtype == to or to.itemsize >= 4:
            return values.astype(to)
        limit = LIMITS.get(to)
        wide = values.astype(np.float64)
        clipped = wide if limit is None else np.clip(wide, -limit, limit)
        return np.asarray(f32_to_odd(clipped)).astype(to)


def towards_zero(values: Array, to: np.dtype[Any]) -> Array:
    """Floating-point values as `to`, without what it has no bits for; infinity stays, but in 8-bit floats, which saturate."""
    nearest = np.atleast_1d(rounded(values, to))
    wide = np.atleast_1d(values).astype(np.float64)
    with np.errstate(all="ignore"):
        too_far = (np.abs(nearest.astype(np.float64)) > np.abs(wide)) & ~np.isnan(wide)
    # The next number towards zero has the raw bits, less one.
    bits = nearest.view(f"u{to.itemsize}") - too_far.astype(f"u{to.itemsize}")
    return bits.view(to).reshape(np.shape(values))


def integers(values: Array, to: np.dtype[Any]) -> Array:
    """Floating-point values as integers, towards zero; what is out of range saturates, and NaN becomes 0."""
    limits = np.iinfo(to)
    wide = np.trunc(values.astype(np.float64))
    # The greatest int64 is no float64: compare, and choose.
    safe = np.where((wide > limits.min) & (wide < float(limits.max)), wide, 0.0).astype(to)
    return np.where(wide >= float(limits.max), limits.max, np.where(wide <= limits.min, limits.min, safe)).astype(to)
