"""Kernels that extend 16-bit elements to f32 and multiply these: the router of experts, in front of the reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

import louver


@triton.jit
def routed(
    scores, x, w, TOKENS, EXPERTS, K, PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """x [TOKENS, K] by w [EXPERTS, K], in f32."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = (first + k < K)[None, :]
        one = tl.load(x + m[:, None] * K + (first + k)[None, :], (m < TOKENS)[:, None] & inside, other=0.0)
        two = tl.load(w + n[:, None] * K + (first + k)[None, :], (n < EXPERTS)[:, None] & inside, other=0.0)
        total += tl.dot(one.to(tl.float32), two.to(tl.float32).T, input_precision=PRECISION)
    at = scores + m[:, None] * EXPERTS + n[None, :]
    tl.store(at, total, mask=(m < TOKENS)[:, None] & (n < EXPERTS)[None, :])


@pytest.mark.parametrize("precision", ["tf32", "ieee", "tf32x3"])
@pytest.mark.parametrize("experts", [64, 24])
def test_16_bit_elements_are_multiplied_as_they_are(rng: np.random.Generator, precision: str, experts: int) -> None:
    tokens, k = 61, 200
    x = rng.standard_normal((tokens, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((experts, k)).astype(np.float16), "2:4")
    scores = np.full((tokens, experts), np.nan, np.float32)
    sizes: dict[str, Any] = {"PRECISION": precision, "BM": 64, "BN": 64, "BK": 64}
    kernel, given = louver.jit(routed), (scores, x, louver.compress(w, "2:4"), tokens, experts, k)
    kernel.emulate[1,](*given, **sizes)
    np.testing.assert_allclose(scores, x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-5, atol=1e-4)
    found = kernel.explain[1,](*given, **sizes)
    assert found.warning is None and ".sp" in found.ptx and "tf32" not in found.ptx
