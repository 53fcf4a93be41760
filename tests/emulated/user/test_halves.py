"""Rows that wrap at half of a tensor's rows, and are moved to the other half then."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import halves

M, K = 40, 136
TILE = {"TM": 32, "TN": 64, "TK": 64}


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(("n", "computed"), [(160, False), (288, False), (144, True), (151, True)])
def test_both_halves_are_described(rng: np.random.Generator, n: int, computed: bool, wrapped: bool) -> None:
    """A half that is no multiple of 16 rows begins between those that share metadata."""
    x = rng.integers(-3, 4, (M, K)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (n, K)).astype(np.float16), "2:4")
    y = np.full((M, n // 2), np.nan, np.float32)
    kernel, grid = louver.jit(halves.gated_halves), (2, -(-(n // 2) // 64))
    given = x, louver.compress(w, "2:4"), y, M, n, K, wrapped
    assert ("computed" in str(kernel.explain[grid](*given, **TILE))) == computed
    kernel.emulate[grid](*given, **TILE)
    one, two = (x.astype(np.float64) @ half.T for half in (w[: n // 2], w[n // 2 : n // 2 * 2]))
    np.testing.assert_array_equal(y, one * two)


@pytest.mark.parametrize("tile", [TILE, TILE | {"TM": 64}])
@pytest.mark.parametrize("sparse_rows", [True, False])
def test_a_half_is_read_from_where_it_begins(rng: np.random.Generator, sparse_rows: bool, tile: dict[str, int]) -> None:
    m, n = 80, 72
    x = rng.integers(-3, 4, (2 * m, K)).astype(np.float16)
    w = rng.integers(-3, 4, (n, K)).astype(np.float16)
    x, w = (louver.prune(x, "2:4"), w) if sparse_rows else (x, louver.prune(w, "2:4"))
    given = (louver.compress(x, "2:4"), w) if sparse_rows else (x, louver.compress(w, "2:4"))
    y = np.full((m, n), np.nan, np.float32)
    louver.jit(halves.second_half).emulate[(3, 2)](*given, y, m, n, K, **tile)
    np.testing.assert_array_equal(y, x[m:].astype(np.float64) @ w.T.astype(np.float64))
