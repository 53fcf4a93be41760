"""A part of a matrix, by a kernel with more integers of 1 and 0 than those of its weight."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def part_with_strides(
    x, w, y, M, N, K, stride_xk, stride_part, stride_wk, stride_wn, stride_yn, first_row, scale,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`part_of_a_matrix`, with strides of columns for all arrays, and numbers that only x and y use."""
    part = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x_at = x + (first_row + m)[:, None] * K + k[None, :] * stride_xk
        one = tl.load(x_at, mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w_at = w + part * stride_part + k[:, None] * stride_wk + n[None, :] * stride_wn
        total = tl.dot(one, tl.load(w_at, mask=(k < K)[:, None], other=0.0), total)
    tl.store(y + part * M * N + m[:, None] * N + n[None, :] * stride_yn, total * scale, mask=(m < M)[:, None])
