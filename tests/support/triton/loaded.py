"""A product whose sizes are loaded from memory, as those of groups are."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def loaded(
    x, w, y, sizes, stride_x, stride_w, stride_wk, stride_y,
    ONCE: tl.constexpr, REST: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y[m, n] = x[m, k] · w[n, k]. ONCE: whether the loop tests after a turn. REST: whether masks compare with what is
    left of K. ROWS: whether rows of w are masked.
    """
    M, N, K = tl.load(sizes), tl.load(sizes + 1), tl.load(sizes + 2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    first = 0
    going = ONCE or first < K
    while going:
        k = first + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * stride_x + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        inside = (tl.arange(0, BK) < K - first)[:, None] if REST else (k < K)[:, None]
        if ROWS:
            inside = inside & (n < N)[None, :]
        right = tl.load(w + n[None, :] * stride_w + k[:, None] * stride_wk, mask=inside, other=0.0)
        total = tl.dot(left, right, total)
        first += BK
        going = first < K
    tl.store(y + m[:, None] * stride_y + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
