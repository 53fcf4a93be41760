"""Programs that share a long K run as they are where a product would sum all of it by few tiles."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

import louver
from louver.user.retile import IDLE, LONG


@triton.jit
def chunks(x, w, y, M, N, K, CHUNK, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n, m = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, CHUNK, BK):
        k = tl.program_id(2) * CHUNK + step + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        two = tl.load(w + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(one, two)
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize(("k", "parts", "family"), [
    (LONG, 2 * IDLE, "register tiles"),
    (LONG // 2, 2 * IDLE, "product"),
    (LONG, 2, "product"),
])  # fmt: skip
def test_who_shares_k(k: int, parts: int, family: str) -> None:
    rng = np.random.default_rng(k + parts)
    m, n = 64, 64
    x, w = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    w, y = louver.prune(w, "2:4", axis=0), np.zeros((m, n), np.float32)
    sizes = {"M": m, "N": n, "K": k, "CHUNK": k // parts, "BM": 64, "BN": 64, "BK": 64}
    call = {"x": x, "w": louver.compress(w, "2:4", axis=0), "y": y, **sizes}
    kernel, grid = louver.jit(chunks), (1, 1, parts)
    told = kernel.explain[grid](**call)
    assert told.family == family
    assert "a product would be faster" not in str(told)
    kernel.emulate[grid](**call)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64), rtol=1e-3, atol=5e-2)
