"""Each step stores the booleans by which it drops elements of an operand."""

from __future__ import annotations

import re

import numpy as np
import triton
import triton.language as tl

import louver


@triton.jit
def dropped(x, w, y, kept, M, N, K, least, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x_at, w_at = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    kept_at, total = kept + m[:, None] * K + k[None, :], tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside = (m[:, None] < M) & (k[None, :] < K - step * BK)
        one = tl.load(x_at, mask=inside, other=0.0)
        two = tl.load(w_at, mask=(n[None, :] < N) & (k[:, None] < K - step * BK), other=0.0)
        mask = (one > least) & inside
        tl.store(kept_at, mask, mask=inside)
        total = tl.dot(tl.where(mask, one, 0.0), two, total)
        x_at += BK
        w_at += BK
        kept_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def test_operands_come_ahead_of_stores_of_booleans() -> None:
    rng = np.random.default_rng(7)
    m, n, k = 32, 16, 256
    x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    w, y, kept = louver.prune(w, "2:4"), np.zeros((m, n), np.float32), np.zeros((m, k), np.bool_)
    sizes = {"M": m, "N": n, "K": k, "least": -0.25, "BM": 32, "BN": 16, "BK": 64}
    call = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "kept": kept, **sizes}
    kernel = louver.jit(dropped)
    ptx = kernel.explain[(1,)](**call).ptx
    # Behind the last product of a step, the next one is loaded.
    assert "cp.async" in ptx and re.search(r" ld\.global", ptx.rsplit("mma.sp", 1)[1])
    kernel.emulate[(1,)](**call)
    np.testing.assert_array_equal(kept, x.astype(np.float64) > -0.25)
    wanted = np.where(kept, x.astype(np.float64), 0) @ w.astype(np.float64).T
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-2)
