"""Vectors that scale sums in each step are divided once, and sums are added to halves by vectors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton import row_scales as kernels

M, N, K, TILE = 48, 128, 256, {"TM": 64, "TN": 128, "TK": 64}


def _operands(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    return x, louver.prune(rng.integers(-3, 4, (n, k)).astype(np.float16), "2:4")


def test_a_thread_divides_few_scales(rng: np.random.Generator) -> None:
    x, w = _operands(rng, M, N, K)
    scales = np.exp2(rng.integers(-3, 4, (M, K // 64 + 1))).astype(np.float32)
    y = np.full((M, N), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), scales, y, M, K, K // 64 + 1
    kernel = louver.jit(kernels.ratios)
    # A thread holds sums of 16 rows.
    assert kernel.explain[1, 1](*given, **TILE).ptx.count("rcp.") == 1
    kernel.emulate[1, 1](*given, **TILE)
    wanted = np.zeros((M, N))
    for step in range(K // 64):
        at = slice(64 * step, 64 * step + 64)
        wanted += x[:, at].astype(np.float64) @ w[:, at].T.astype(np.float64)
        wanted *= (scales[:, step] / scales[:, step + 1])[:, None].astype(np.float64)
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)


VECTORS = {
    np.float16: ("add.noftz.f16 ", "add.noftz.v4.f16x2 "),
    ml_dtypes.bfloat16: ("add.noftz.bf16 ", "add.noftz.v4.bf16x2 "),
    np.float32: ("add.f32 ", "add.v4.f32 "),
}


@pytest.mark.parametrize(("element", "warps"), [(np.float16, 8), (ml_dtypes.bfloat16, 8), (np.float32, 4)])
def test_sums_are_added_by_vectors(rng: np.random.Generator, element: Any, warps: int) -> None:
    m, n = 80, 192
    x, w = _operands(rng, m, n, K)
    y = rng.integers(-8, 8, (m, n)).astype(element)
    wanted = y.astype(np.float64) + 0.5 * (x.astype(np.float64) @ w.T.astype(np.float64))
    given = x, louver.compress(w, "2:4"), y, m, n, K
    kernel = louver.jit(kernels.shares)
    made = kernel.explain[2, 3, 2](*given, TM=64, TN=64, TK=64, SHARES=2, num_warps=warps)
    single, vector = VECTORS[element]
    assert made.family == "register tiles"
    assert f"red.global.{single}" not in made.ptx and f"red.global.{vector}" in made.ptx
    kernel.emulate[2, 3, 2](*given, TM=64, TN=64, TK=64, SHARES=2, num_warps=warps)
    error = 2.0 ** (-6 if element == ml_dtypes.bfloat16 else -9) * np.maximum(np.abs(wanted), 64)
    assert (np.abs(y.astype(np.float64) - wanted) <= error).all()


@pytest.mark.parametrize("k", [256, 384, 64])
def test_no_box_of_a_step_behind_the_last_one_is_read(rng: np.random.Generator, k: int) -> None:
    """Without a mask of K, the map of x has more columns than x. With 64 columns there is no step."""
    m, n = 80, 192
    x, w = _operands(rng, m, n, k)
    y = np.zeros((m, n), np.float16)
    given = x, louver.compress(w, "2:4"), y, m, n, k
    louver.jit(kernels.shares).emulate[2, 3, 2](*given, TM=64, TN=64, TK=64, SHARES=2, MASKED=False)
    wanted = 0.5 * (x.astype(np.float64) @ w.T.astype(np.float64)) * (k > 64)
    np.testing.assert_allclose(y, wanted, rtol=2.0**-9, atol=2.0**-3)


def test_threads_that_wait_for_sums_do_not_spill(rng: np.random.Generator) -> None:
    """Four warps have room for one tile of sums; a step has two, and its scales."""
    m, n, k = 100, 72, 200
    x, w = _operands(rng, m, n, k)
    scales = [np.exp2(rng.integers(-3, 4, (size, 4))).astype(np.float32) for size in (m, n)]
    listed, y = rng.permutation(m).astype(np.int32), np.full((m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), *scales, listed, y, m, n, k
    kernel, tile = louver.jit(kernels.both_scaled), {"TM": 128, "TN": 128, "TK": 64, "num_warps": 4}
    found = kernel.explain[1, 1](*given, **tile)
    assert "registers to memory" not in str(found.warning) and ".reqntid 256" in found.ptx
    kernel.emulate[1, 1](*given, **tile)
    wanted = np.zeros((m, n))
    for step in range(4):
        at = slice(64 * step, 64 * step + 64)
        sums = x[listed, at].astype(np.float64) @ w[:, at].T.astype(np.float64)
        wanted += sums * scales[0][listed, step, None] * scales[1][None, :, step]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)
