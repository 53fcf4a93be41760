"""A product whose weight has rows of any stride."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(x, w, y, M, N, K, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y = x @ w.T for w [N, K] with rows `stride` apart."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        columns = k + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * K + columns[None, :], mask=(m < M)[:, None] & (columns < K)[None, :], other=0.0)
        right = tl.load(
            w + n[None, :] * stride + columns[:, None], mask=(n < N)[None, :] & (columns < K)[:, None], other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
