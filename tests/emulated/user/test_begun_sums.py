"""A loop whose sums begin with those of a dot before it."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

import louver


@triton.jit
def sums_from_a_dot(
    x, w, y, left, right, keep, M, N, K, scale, R: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Adapters: a dense dot, dropped and scaled, begins the sums of the loop."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k, r = tl.arange(0, BK), tl.arange(0, R)
    total = tl.dot(tl.load(left + m[:, None] * R + r[None, :]), tl.load(right + r[:, None] * N + n[None, :]))
    total = tl.where(tl.load(keep + m[:, None] * N + n[None, :]) != 0, total * scale, 0.0)
    for step in range(K // BK):
        x_at, w_at = x + m[:, None] * K + step * BK + k[None, :], w + (step * BK + k[:, None]) * N + n[None, :]
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
    tl.store(y + m[:, None] * N + n[None, :], total)


def test_a_loop_keeps_the_places_of_its_own_sums() -> None:
    """The loop's product is transposed, and the dot before it is not: its sums are exchanged once, not in each step."""
    rng = np.random.default_rng(3)
    m, n, k, r = 128, 128, 256, 16
    x, w, left, right = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n), (m, r), (r, n)))
    w, keep, y = (
        louver.prune(w, "2:4", axis=0),
        rng.integers(0, 2, (m, n)).astype(np.int8),
        np.zeros((m, n), np.float32),
    )
    call = {
        "x": x, "w": louver.compress(w, "2:4", axis=0), "y": y, "left": left, "right": right, "keep": keep,
        "M": m, "N": n, "K": k, "scale": 1.5, "R": r, "BM": 128, "BN": 64, "BK": 64,
    }  # fmt: skip
    kernel, grid = louver.jit(sums_from_a_dot), (1, 2)
    ptx = kernel.explain[grid](**call).ptx
    # As computed before the loop: 32 sums of a thread.
    assert ptx.count("st.shared.f32") == 32 and "st.shared.f32" not in ptx.split("wgmma.mma_async.sp", 1)[1]
    kernel.emulate[grid](**call)
    begun = np.where(keep != 0, 1.5 * (left.astype(np.float64) @ right.astype(np.float64)), 0)
    np.testing.assert_allclose(y, begun + x.astype(np.float64) @ w.astype(np.float64), rtol=1e-3, atol=2e-2)
