"""The arithmetic of the warpgroup products on matrices: what `Wgmma.meaning` computes once operands are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.swizzle import CHUNK

if TYPE_CHECKING:
    from louver.isa.wgmma import Wgmma

Shared: TypeAlias = NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
"""A CTA's shared memory: its bytes, or a function from byte addresses to bytes of the same shape."""

TF32_MASK = np.uint32(0xFFFFE000)
"""The bits of a float32 that a tf32 product reads."""


def read(shared: Shared, chunks: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The bytes of 16-byte chunks, uint8 [lines, 16 * count], from their addresses, int64 [lines, count]."""
    addresses = chunks[:, :, None] + np.arange(CHUNK)
    if callable(shared):
        data = shared(addresses)
    else:
        last = int(chunks.max()) + CHUNK
        if last > shared.size:
            raise ValueError(f"a product reads shared memory up to byte {last}, got a window of {shared.size} bytes")
        data = shared[addresses]
    return np.ascontiguousarray(data).reshape(chunks.shape[0], -1)


def widen(values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """The values as the tensor core reads them: exact, except that tf32 drops the lowest 13 bits."""
    if name == "tf32":
        values = (np.ascontiguousarray(values).view(np.uint32) & TF32_MASK).view(np.float32)
    return values.astype(np.float64)


def multiply(
    form: Wgmma, a: NDArray[Any], b: NDArray[Any], columns: NDArray[np.int64] | None, d: NDArray[Any] | None
) -> NDArray[Any]:
    """D, [64, n] of d's dtype, from A's stored values [64, stored], B [k, n] and the old D or None.

    columns: the dense column of each stored value, int64 [64, stored]; None when A is dense. A pruned place is not
    multiplied, so infinities of B there leave no trace.
    """
    left, right = widen(a, form.a), widen(b, form.b)
    if form.negate_a != form.negate_b:
        left = -left
    with np.errstate(over="ignore", invalid="ignore"):
        total = _dot(left, right, columns)
        if d is not None:
            total = total + d.astype(np.float64)
        if form.d == "s32":
            return _to_s32(total, form.satfinite)
        return total.astype(np.float16 if form.d == "f16" else np.float32)


def _dot(
    left: NDArray[np.float64], right: NDArray[np.float64], columns: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    if columns is None:
        return left @ right
    if not np.isfinite(right).all():
        return np.einsum("ms,msn->mn", left, right[columns])
    dense = np.zeros((left.shape[0], right.shape[0]))
    np.put_along_axis(dense, columns, left, axis=1)
    return dense @ right


def _to_s32(total: NDArray[np.float64], saturate: bool) -> NDArray[np.int32]:
    # The sums are below 2^53, so float64 holds them exactly.
    exact = total.astype(np.int64)
    if saturate:
        limits = np.iinfo(np.int32)
        return exact.clip(limits.min, limits.max).astype(np.int32)
    return exact.astype(np.uint32).view(np.int32)
