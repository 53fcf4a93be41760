"""Arithmetic of matrix products, for `Wgmma.meaning` and `Mma.meaning`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.rule import RuleError
from louver.isa.swizzle import CHUNK

TF32_MASK = np.uint32(0xFFFFE000)
"""Bits of a float32 that a tf32 product reads."""

QUIET_NAN = np.uint32(0x00400000)
"""The bit of a float32 that makes a NaN quiet."""

TF32_HALF = np.uint32(0x1000)
"""Half of the lowest bit in `TF32_MASK`."""


def widen(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """The values that the tensor core reads: exact, but f32 as `read_tf32`."""
    return (read_tf32(values) if name == "tf32" else values).astype(np.float64)


def read_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 as tf32 products read it: the lowest 13 bits are dropped, also those of subnormal numbers and of NaN. A NaN
    with no other bit set reads as an infinity.
    """
    return (np.ascontiguousarray(values).view(np.uint32) & TF32_MASK).view(np.float32)


def f32_to_tf32(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 rounded to tf32, ties away from zero (`cvt.rna.tf32.f32`, PTX ISA, cvt). NaN becomes quiet, so that products
    read it as NaN. Numbers that would become infinite are truncated.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits + TF32_HALF) & TF32_MASK).view(np.float32)
    cut = (bits & TF32_MASK).view(np.float32)
    quiet = ((bits | QUIET_NAN) & TF32_MASK).view(np.float32)
    return np.where(np.isnan(values), quiet, np.where(np.isfinite(rounded), rounded, cut))


def multiply(
    types: tuple[str, str, str],
    a: NDArray[Any],
    b: NDArray[Any],
    columns: NDArray[np.int64] | None,
    d: NDArray[Any] | None,
    *,
    negate: bool = False,
    saturate: bool = False,
) -> NDArray[Any]:
    """D, [m, n] of its type, from stored values of A [m, stored], B [k, n], and the old D or None.

    types: of A, B and D. columns: dense column of each stored value, int64 [m, stored]; None for a dense A. Pruned
    places are not multiplied, so infinities of B have no effect there. negate: flip the sign of the product. saturate:
    s32 sums saturate instead of wrapping. Numerics: exact products, summed in float64, rounded once to D's type.
    """
    left, right = widen(a, types[0]), widen(b, types[1])
    if negate:
        left = -left
    with np.errstate(over="ignore", invalid="ignore"):
        total = _dot(left, right, columns)
        if d is not None:
            total = total + d.astype(np.float64)
        if types[2] == "s32":
            return _to_s32(total, saturate)
        return total.astype(np.float16 if types[2] == "f16" else np.float32)


def _dot(
    left: NDArray[np.float64], right: NDArray[np.float64], columns: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    if columns is None:
        return left @ right
    if not np.isfinite(right).all():
        return np.einsum("ms,msn->mn", left, right[columns])
    dense = np.zeros((left.shape[0], right.shape[0]))
    dense[np.arange(left.shape[0])[:, None], columns] = left
    return dense @ right


def _to_s32(total: NDArray[np.float64], saturate: bool) -> NDArray[np.int32]:
    # The sums are below 2^53, so float64 holds them exactly.
    exact = total.astype(np.int64)
    if saturate:
        limits = np.iinfo(np.int32)
        return exact.clip(limits.min, limits.max).astype(np.int32)
    return exact.astype(np.uint32).view(np.int32)


Shared: TypeAlias = NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
"""Shared memory of a CTA: its bytes, or a function from byte addresses to bytes of the same shape."""


def read(shared: Shared, chunks: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Bytes of 16-byte chunks, uint8 [lines, 16 * count], from their addresses, int64 [lines, count]."""
    addresses = chunks[:, :, None] + np.arange(CHUNK)
    if callable(shared):
        data = shared(addresses)
    else:
        last = int(chunks.max()) + CHUNK
        if last > shared.size:
            raise RuleError(f"a product reads shared memory up to byte {last}, got a window of {shared.size} bytes")
        data = shared[addresses]
    return np.ascontiguousarray(data).reshape(chunks.shape[0], -1)
