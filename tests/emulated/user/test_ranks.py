"""Rows of sparse tiles that end at the least of the matrix and a loaded number."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import ranks as kernels

M, N, K, E = 70, 80, 136, 4


@pytest.mark.parametrize(("whole", "most"), [(False, N), (True, N), (False, 96)])
def test_rows_to_a_loaded_rank_are_described_if_no_store_has_others(
    rng: np.random.Generator, whole: bool, most: int
) -> None:
    """Beyond its rank an adapter's rows are infinite: they are read, and no store has them; else addresses are computed."""
    x = rng.integers(-3, 4, (M, K)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (E, N, K)).astype(np.float16), "2:4")
    ranks, chosen = np.array([7, 0, 40, 500 if most == N else 40], np.int32), np.array([3, 0, 1], np.int32)
    rows = np.minimum(2 * ranks, N)
    y = np.full((M, N), np.nan, np.float32)
    expected = np.zeros((M, N)) if whole else y.astype(np.float64)
    for at, adapter in enumerate(chosen):
        own, end = slice(32 * at, 32 * at + 32), rows[adapter]
        expected[own, :end] = x[own].astype(np.float64) @ w[adapter, :end].T.astype(np.float64)
    beyond = np.arange(N)[None, :, None] >= rows[:, None, None]
    w = np.where(beyond & (w != 0), np.float16(np.inf), w)
    kernel, tile = louver.jit(kernels.adapters), {"TM": 32, "TN": 64, "TK": 64}
    given = x, louver.compress(w, "2:4"), y, chosen, ranks, M, most, N, K, whole
    assert ("computed" in str(kernel.explain[2, 3](*given, **tile))) == (whole or most > N)
    kernel.emulate[2, 3](*given, **tile)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("tile", [16, 64])
@pytest.mark.parametrize("starts", [[0, 16, 32], [3, 40, 50]], ids=["whole tiles", "any rows"])
def test_columns_to_the_least_of_k_and_a_loaded_rank(rng: np.random.Generator, starts: list[int], tile: int) -> None:
    """Beyond its rank a matrix is infinite. Its rows are read in whole pieces, at computed addresses too."""
    columns, rows, length = 64, 20, 70
    x = rng.integers(-3, 4, (rows, columns)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (length, columns)).astype(np.float16), "2:4")
    ranks = np.array([21, 0, 7], np.int32)
    w = np.where((np.arange(columns) >= 21) & (w != 0), np.float16(np.inf), w)
    y = np.full((3, rows, 16), np.nan, np.float32)
    kernel = louver.jit(kernels.low_ranks)
    given = x, louver.compress(w, "2:4"), y, np.array(starts, np.int32), ranks, columns, columns, rows, 16
    made = kernel.explain[3, 1](*given, TM=32, TN=16, TK=tile)
    assert "in pieces of 4 bytes" not in str(made)
    kernel.emulate[3, 1](*given, TM=32, TN=16, TK=tile)
    for at, (first, own) in enumerate(zip(starts, ranks, strict=True)):
        wanted = x[:, :own].astype(np.float64) @ w[first : first + 16, :own].T.astype(np.float64)
        np.testing.assert_array_equal(y[at], wanted)


RANKS = {"begin": [0, 36, 16, 52], "rank": [16, 8, 20, 4]}
"""Columns of adapters: no multiples of 16, the last ones at the end of the tensor."""


def given_ragged(rng: np.random.Generator, *, across: bool, columns: int = 56) -> tuple[list[object], np.ndarray]:
    """Arguments of `ragged`, and the result. Only columns of no adapter are infinite."""
    m, n, k = 20, 150, 72
    x, down = (rng.integers(-2, 3, shape).astype(np.float16) for shape in ((m, k), (columns, k)))
    up = louver.prune(rng.integers(-2, 3, (n, columns)).astype(np.float16), "2:4")
    unread = np.isin(np.arange(columns), [44, 45, 46, 47, 48, 49, 50, 51, *range(56, columns)])
    own = np.zeros((4, m, n))
    for at, (first, rank) in enumerate(zip(RANKS["begin"], RANKS["rank"], strict=True)):
        part = slice(first, first + rank)
        low = (x.astype(np.float64) @ down[part].T.astype(np.float64)).astype(np.float16)
        own[at] = low.astype(np.float64) @ up[:, part].T.astype(np.float64)
    up = np.where(unread & (up != 0), np.float16(np.inf), up)
    packed = louver.compress(np.ascontiguousarray(up.T), "2:4", axis=-2) if across else louver.compress(up, "2:4")
    y = np.full(own.shape, np.nan, np.float32)
    begin, rank = (np.array(RANKS[name], np.int64) for name in ("begin", "rank"))
    strides = (n, 1) if across else (1, columns)
    return [x, down, packed, y, begin, rank, m, *strides, n, k], own


@pytest.mark.parametrize("across", [True, False], ids=["KN", "NK"])
@pytest.mark.parametrize(("warps", "columns"), [(4, 56), (8, 56), (4, 64)])
def test_columns_begin_again_where_the_other_operand_is_zero(
    rng: np.random.Generator, across: bool, warps: int, columns: int
) -> None:
    """A rank is a multiple of a group, not of 16. What is beyond it is neither read nor checked."""
    given, expected = given_ragged(rng, across=across, columns=columns)
    kernel, tile = louver.jit(kernels.ragged), {"TM": 32, "TN": 64, "TK": 32, "R": 32}
    # Copies of pieces that may be cut compare their masks.
    assert "xor.pred" in kernel.explain[4, 1](*given, **tile, num_warps=warps).ptx
    kernel.emulate[4, 1](*given, **tile, num_warps=warps)
    np.testing.assert_allclose(given[3], expected, rtol=0, atol=2.0**-8 * np.abs(expected).max())


@pytest.mark.parametrize("across", [True, False], ids=["KN", "NK"])
def test_a_rank_that_cuts_a_group_is_an_error(rng: np.random.Generator, across: bool) -> None:
    given, _ = given_ragged(rng, across=across)
    given[5] = np.array([16, 8, 18, 4], np.int64)
    kernel, tile = louver.jit(kernels.ragged), {"TM": 32, "TN": 64, "TK": 32, "R": 32}
    with pytest.raises(louver.AddressError):
        kernel.emulate[4, 1](*given, **tile)
