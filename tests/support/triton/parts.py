"""Kernels that read parts of a weight."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def part(
    y, w, x, M, N, K, stride_w, row, column, MOVED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = rows from `row` on and columns from `column` on of w, times x [K, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if MOVED:
        w += row * stride_w + column
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(w + m[:, None] * stride_w + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(x + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def share(y, w, x, N, ROWS: tl.constexpr, K: tl.constexpr, SHARE: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [parts, matrices, ROWS, N]: products of each matrix of w [matrices, ROWS, K] and x [K, N], over SHARE columns of K each."""
    matrix, part = tl.program_id(0), tl.program_id(1)
    m, n = tl.arange(0, ROWS), tl.arange(0, BN)
    total = tl.zeros((ROWS, BN), dtype=tl.float32)
    for step in range(SHARE // BK):
        k = part * SHARE + step * BK + tl.arange(0, BK)
        left = tl.load(w + (matrix * ROWS + m[:, None]) * K + k[None, :])
        total += tl.dot(left, tl.load(x + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0))
    row = (part * tl.num_programs(0) + matrix) * ROWS + m[:, None]
    tl.store(y + row * N + n[None, :], total, mask=n[None, :] < N)
