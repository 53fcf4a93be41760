"""Reductions of a product whose rows lie across warps: a sparse right operand makes it the transposed one."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def weighted(a, s, b, t):
    return a + b, s * t


@triton.jit
def across(
    most, column, above, found, wide, whole, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Of each row of x [M, K] by w [N, K]: several reductions; and the least of each tile."""
    m, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BK)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        one = tl.load(
            x + m[:, None] * K + first + k[None, :], mask=(m < M)[:, None] & (first + k < K)[None, :], other=0.0
        )
        two = tl.load(
            w + n[:, None] * K + first + k[None, :], mask=(n < N)[:, None] & (first + k < K)[None, :], other=0.0
        )
        total = tl.dot(one, two.T, total)
    value, at = tl.max(total, 1, return_indices=True)
    positive = total > 0
    halves, _ = tl.reduce((total.to(tl.float16), positive.to(tl.int8)), 1, weighted)
    tl.store(most + m, value, mask=m < M)
    tl.store(column + m, at, mask=m < M)
    tl.store(above + m, tl.sum(positive.to(tl.int64), 1), mask=m < M)
    tl.store(found + m, tl.reduce(total > 12.0, 1, either).to(tl.int8), mask=m < M)
    tl.store(wide + m, halves, mask=m < M)
    tl.store(whole + tl.program_id(0), tl.min(total))


@pytest.mark.parametrize(
    ("tile", "warps"), [((64, 64), 4), ((16, 128), 8), ((128, 128), 8), ((64, 32), 4), ((128, 64), 16)]
)
def test_reductions_across_warps(rng: np.random.Generator, tile: tuple[int, int], warps: int) -> None:
    (block, columns), k = tile, 72
    rows = 2 * block - 3
    x = rng.standard_normal((rows, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((columns, k)).astype(np.float16), "2:4")
    outs: dict[str, Any] = {
        "most": np.full(rows, np.nan, np.float32),
        "column": np.full(rows, -77, np.int32),
        "above": np.full(rows, -77, np.int64),
        "found": np.full(rows, -77, np.int8),
        "wide": np.full(rows, np.nan, np.float16),
        "whole": np.full(2, np.nan, np.float32),
    }
    kernel = louver.jit(across)
    kernel.emulate[2,](
        *outs.values(), x, louver.compress(w, "2:4"), rows, columns, k, BM=block, BN=columns, BK=64, num_warps=warps
    )
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(outs["most"], exact.max(1), rtol=1e-4)
    assert (outs["column"] == exact.argmax(1)).all()
    assert (outs["above"] == (exact > 0).sum(1)).all()
    assert (outs["found"] == (exact > 12).any(1)).all()
    np.testing.assert_allclose(outs["wide"].astype(np.float64), exact.sum(1), rtol=0.02, atol=1.5)
    np.testing.assert_allclose(outs["whole"], [min(0, exact[:block].min()), min(0, exact[block:].min())], rtol=1e-4)


@triton.jit
def vector_product(y, x, w, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """w [N, K] times the vector x: no dot."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BN,), dtype=tl.float32)
    for first in range(0, K, BK):
        one = tl.load(x + first + k, mask=first + k < K, other=0.0).to(tl.float32)
        inside = (n < N)[:, None] & (first + k < K)[None, :]
        two = tl.load(w + n[:, None] * K + (first + k)[None, :], mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(two * one[None, :], 1)
    tl.store(y + n, total, mask=n < N)


@pytest.mark.parametrize("k", [64, 256, 320, 1040])
def test_vectors_are_multiplied_as_they_arrive(rng: np.random.Generator, k: int) -> None:
    """What a loop reduces is loaded a step ahead, in whole chunks, and not exchanged."""
    rows = 45
    x = rng.standard_normal(k, np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((rows, k), np.float32).astype(np.float16), "2:4")
    y = np.full(rows, np.nan, np.float32)
    sizes: dict[str, Any] = {"BN": 32, "BK": 256}
    kernel = louver.jit(vector_product)
    s = louver.compress(w, "2:4")
    kernel.emulate[-(-rows // 32),](y, x, s, rows, k, **sizes)
    np.testing.assert_allclose(y, w.astype(float) @ x.astype(float), rtol=1e-4, atol=1e-4)
    ptx = kernel.explain(y, x, s, rows, k, **sizes).ptx
    before, _, inside = ptx.partition("\nloop_")
    assert ".shared" not in inside and "ld.global.b16" not in ptx
    assert before.count("ld.global.v4") == inside.count("ld.global.v4") > 0


@triton.jit
def log_sums(
    y, spread, x, w, M, N, K, CARRIED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """log(sum(exp(row))) of x [M, K] by w [N, K], added to what y holds; and the middle of each row's ends."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    most, least = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = (first + k < K)[None, :]
        one = tl.load(x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & inside, other=0.0)
        two = tl.load(w + n[:, None] * K + (first + k)[None, :], mask=(n < N)[:, None] & inside, other=0.0)
        total = tl.dot(one, two.T, total)
        if CARRIED:
            most = tl.maximum(most, tl.max(total, 1))
            least = tl.minimum(least, tl.min(total, 1))
    values = tl.where((n < N)[None, :], total, -float("inf"))
    top = tl.max(values, 1)
    found = top + tl.log(tl.sum(tl.exp(values - top[:, None]), 1))
    known = tl.load(y + m, mask=m < M, other=0.0)
    high = tl.maximum(known, found)
    tl.store(y + m, high + tl.log(tl.exp(known - high) + tl.exp(found - high)), mask=m < M)
    if not CARRIED:
        most, least = top, tl.min(total, 1)
    tl.store(spread + m, (most + least) * 0.5, mask=m < M)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("tile", [(128, 128), (256, 64), (32, 128)])
def test_each_element_of_a_result_is_computed_once(
    rng: np.random.Generator, tile: tuple[int, int], carried: bool
) -> None:
    """All warps share the rows of a transposed product; one thread computes with the result of a row."""
    (block, columns), k = tile, 72
    rows = 2 * block - 3
    x = (rng.standard_normal((rows, k)) * 0.3).astype(np.float16)
    w = louver.prune(rng.standard_normal((columns - 5, k)).astype(np.float16), "2:4")
    known, spread = rng.standard_normal(rows).astype(np.float32), np.full(rows, np.nan, np.float32)
    sizes: dict[str, Any] = {"CARRIED": carried, "BM": block, "BN": columns, "BK": 64, "num_warps": 8}
    given = (spread, x, louver.compress(w, "2:4"), rows, columns - 5, k)
    y, kernel = known.copy(), louver.jit(log_sums)
    kernel.emulate[2,](y, *given, **sizes)
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    wanted = np.logaddexp(known.astype(np.float64), np.logaddexp.reduce(exact, axis=1))
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    # The last columns of a tile are zeros; a loop carries the ends of all its sums.
    first = x[:, :64].astype(np.float64) @ w[:, :64].astype(np.float64).T
    seen = np.concatenate([first, exact], 1) if carried else exact
    least, most = np.minimum(seen.min(1), 0), np.maximum(seen.max(1), 0) if carried else seen.max(1)
    np.testing.assert_allclose(spread, (most + least) / 2, rtol=1e-3, atol=2e-3)
    if not carried:
        assert kernel.explain[2,](known, *given, **sizes).ptx.count("lg2.approx") <= 4
