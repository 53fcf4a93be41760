"""Scales of blocks: numbers as floats of few bits, and a power of two for each block of columns."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.dtypes import NARROW_FLOATS, element_type
from louver.formats.dynamo import opaque

SCALED_COLUMNS: Final = 64
"""Columns of K with one scale: those of one sparse product (PTX ISA, Block Scaling, scale_vec::1X of m16n8k64). Dense
products have 32 columns, as blocks of OCP MX have.
"""

BIAS: Final = 127
"""The byte of a scale of 1: byte x is 2^(x - 127) (OCP Microscaling Formats 1.0, E8M0). 255 is NaN."""

BlockType = Literal["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]


@opaque
def quantize_blocks(array: ArrayLike, dtype: BlockType = "e4m3") -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Numbers as `values · 2^(scales - 127)`: values [..., K] of `dtype`, and scales uint8 [..., K/64], rounded up.

    array: [..., K], finite numbers that NumPy reads; prune them first, since zeros stay zeros. The power of a block is that
    of its greatest magnitude over that of the greatest number of `dtype`. Values are rounded to nearest even, and beyond
    the greatest number they are that number. A block of zeros has scale 1.
    Source: OCP Microscaling Formats 1.0, section 6.3. Raises ValueError for another dtype, a scalar, infinities and NaN.
    """
    element = element_type(dtype, ("e4m3", "e5m2", *NARROW_FLOATS))
    wide = np.asarray(array).astype(np.float64)
    if wide.ndim == 0 or not np.isfinite(wide).all():
        got = "a scalar" if wide.ndim == 0 else "infinities or NaN"
        raise ValueError(f"blocks are of finite numbers along the last axis, got {got}: give an array without them")
    *leading, k = wide.shape
    blocks = -(-k // SCALED_COLUMNS)
    padded = np.zeros((*leading, blocks * SCALED_COLUMNS))
    padded[..., :k] = wide
    finfo: Any = ml_dtypes.finfo
    groups, most = padded.reshape(*leading, blocks, SCALED_COLUMNS), float(finfo(element.numpy).max)
    largest: NDArray[np.float64] = np.abs(groups).max(axis=-1, initial=0)
    exponents: NDArray[np.int32] = np.frexp(largest)[1] - math.frexp(most)[1]
    powers: NDArray[np.int32] = np.where(largest == 0, 0, exponents).clip(-BIAS, BIAS)
    scaled = np.ldexp(groups, -powers[..., None]).clip(-most, most).reshape(padded.shape)[..., :k]
    return np.ascontiguousarray(scaled).astype(element.numpy), (powers + BIAS).astype(np.uint8)
