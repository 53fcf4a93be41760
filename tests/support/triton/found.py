"""A product of two dense matrices of any strides, as in Triton's tutorial, whose second one may hold a pattern."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(
    x, w, y, M, N, K, x_row, x_column, w_row, w_column, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(
            x + rows[:, None] * x_row + k[None, :] * x_column, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0
        )
        right = tl.load(
            w + k[:, None] * w_row + columns[None, :] * w_column,
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        sums = tl.dot(left, right, sums)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y + rows[:, None] * y_row + columns[None, :], sums.to(y.dtype.element_ty), mask=inside)


@triton.jit
def scaled(x, w, y, N, BLOCK: tl.constexpr):
    """Multiplies elements; no dot."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < N) * tl.load(w + at, mask=at < N), mask=at < N)
