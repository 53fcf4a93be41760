"""The plainest product: pointers that a loop moves, masks at the edges."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Call, Draw, Form, Sizes


@triton.jit
def masked_product(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [K, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - first), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - first) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        w_at += BK
        x_at += BK * N
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _product(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "w": w, "x": x},
        lambda: {"y": w.astype(np.float64) @ x.astype(np.float64)},
    )


LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64), Sizes(4096, 4096, 4096, 64, 64, 64))

FORMS = (Form("masked product", masked_product, _product, Sizes(150, 104, 264, 128, 64, 64), LARGE),)
