"""Weights of experts [E, K, N] that are sparse along K, by descriptors whose blocks have one matrix: the axis of one element goes
before or behind a transposition.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl


@triton.jit
def experts(
    x,
    w,
    y,
    E,
    M,
    N,
    K,
    apart,
    FIRST: tl.constexpr,
    TWO: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """y[e] = x[e] @ w[e]. apart: elements between matrices of w. FIRST: the matrix of a block is taken, then transposed twice. TWO: the sum is used twice."""
    e, m, n = tl.program_id(2), tl.program_id(0) * BM, tl.program_id(1) * BN
    xs = tl.make_tensor_descriptor(x, [E, M, K], [M * K, K, 1], [1, BM, BK])
    ws = tl.make_tensor_descriptor(w, [E, K, N], [apart, N, 1], [1, BK, BN])
    ys = tl.make_tensor_descriptor(y, [E, M, N], [M * N, N, 1], [1, BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left, right = xs.load([e, m, k]).reshape([BM, BK]), ws.load([e, k, n])
        if FIRST:
            right = right.reshape([BK, BN])
        else:
            right = tl.permute(tl.permute(right, (0, 2, 1)).reshape([BN, BK]), (1, 0))
        total = tl.dot(left, right, total)
    if TWO:
        total = total / (1.0 + tl.sum(tl.abs(total), axis=1))[:, None]
    ys.store([e, m, n], total.reshape([1, BM, BN]))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("two", [True, False])
def test_a_block_of_one_matrix_comes_by_bulk_copies(rng: np.random.Generator, first: bool, two: bool) -> None:
    e, m, n, k = 2, 72, 128, 160
    x = rng.standard_normal((e, m, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((e, k, n)).astype(np.float16), "2:4", axis=1)
    y = np.full((e, m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=1), y, e, m, n, k, k * n, first, two, 64, 128, 64
    kernel = louver.jit(experts)
    explained = kernel.explain[2, 1, e](*given)
    assert ("w_box" in explained.ptx) is (explained.family == "register tiles")
    kernel.emulate[2, 1, e](*given)
    expected = x.astype(np.float64) @ w.astype(np.float64)
    if two:
        expected /= 1 + np.abs(expected).sum(2, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=2.0**-9, atol=2.0**-12 * np.abs(expected).max())


@pytest.mark.parametrize("two", [True, False])
@pytest.mark.parametrize("apart", [0, 16])
def test_the_stride_between_matrices_of_a_single_one_is_any(rng: np.random.Generator, apart: int, two: bool) -> None:
    m, n, k = 72, 128, 160
    x = rng.standard_normal((1, m, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((k, n)).astype(np.float16), "2:4", axis=0)
    y = np.full((1, m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4", axis=0), y, 1, m, n, k, apart, True, two, 64, 128, 64
    kernel = louver.jit(experts)
    assert "computed" not in str(kernel.explain[2, 1, 1](*given))
    kernel.emulate[2, 1, 1](*given)
    expected = x.astype(np.float64) @ w.astype(np.float64)
    if two:
        expected /= 1 + np.abs(expected).sum(2, keepdims=True)
    np.testing.assert_allclose(y, expected, rtol=2.0**-9, atol=2.0**-12 * np.abs(expected).max())
