"""Products whose sums are scaled in each step by vectors that lie apart in memory, one element for each row of x."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def carried_ratio(y, x, xs, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [N, K] transposed. Each step of BK columns has a scale for each row: xs [M, K / BK].

    The loop carries the scale of the step, and its ratio to the scale of the step before.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    steps = tl.cdiv(K, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    xs_at = xs + m * steps
    scale = tl.load(xs_at, mask=m < M, other=1.0)
    ratio = tl.full((BM,), 1.0, tl.float32)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(steps):
        a = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        b = tl.load(w_at, mask=(n[None, :] < N) & (k[:, None] < K - step * BK), other=0.0)
        later = tl.load(xs_at + tl.minimum(step + 1, steps - 1), mask=m < M, other=1.0)
        total = total * ratio[:, None] + tl.dot(a, b)
        ratio, scale = scale / later, later
        x_at += BK
        w_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total * scale[:, None], mask=(m[:, None] < M) & (n[None, :] < N))
