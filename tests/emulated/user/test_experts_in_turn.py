"""Sparse tiles whose place a condition limits: the tiles of each expert, which programs take in turn."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import experts_in_turn

SIZES = np.array([70, 0, 5, 64, 0], np.int32)
"""Of the last expert, no rows: what lies behind the others' matrices is in the tensor."""

E, ROWS = len(SIZES), int(SIZES.sum())
TILE = {"BM": 32, "BN": 64, "BK": 64}


def _by_expert(rows: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Each expert's rows times its matrix of w [E, inner, outer]."""
    ends = np.cumsum(SIZES)
    return np.concatenate([rows[e - n : e] @ one for n, e, one in zip(SIZES, ends, w, strict=True)])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("across", [False, True])
def test_the_tiles_of_experts_are_described(
    rng: np.random.Generator, across: bool, rows_first: bool, masked: bool
) -> None:
    n, k = (72, 200) if masked else (128, 192)
    axis = -2 if across else -1
    dense = rng.integers(-3, 4, (E, k, n) if across else (E, n, k)).astype(np.float16)
    w = louver.prune(dense, "2:4", axis=axis)
    x = rng.integers(-3, 4, (ROWS, k)).astype(np.float16)
    y = np.full((ROWS, n), np.nan, np.float32)
    strides = n * k, n if across else k
    flags: dict[str, Any] = {"ACROSS": across, "ROWS_FIRST": rows_first, "MASKED": masked}
    given = x, louver.compress(w, "2:4", axis=axis), y, SIZES, E, n, k, *strides, 3
    kernel = louver.jit(experts_in_turn.experts_in_turn)
    assert "computed" not in str(kernel.explain[(3,)](*given, **TILE, **flags))
    kernel.emulate[(3,)](*given, **TILE, **flags)
    wide = w.astype(np.float64)
    np.testing.assert_array_equal(y, _by_expert(x.astype(np.float64), wide if across else wide.swapaxes(1, 2)))


def test_columns_beyond_a_matrix_are_computed(rng: np.random.Generator) -> None:
    """The last tile of columns goes beyond its matrix, in a kernel that masks no w: no result shows what it reads there."""
    n, k = 96, 192
    w = louver.prune(rng.integers(-3, 4, (E, n, k)).astype(np.float16), "2:4")
    x = rng.integers(-3, 4, (ROWS, k)).astype(np.float16)
    y = np.full((ROWS, n), np.nan, np.float32)
    flags: dict[str, Any] = {"ACROSS": False, "ROWS_FIRST": True, "MASKED": False}
    given = x, louver.compress(w, "2:4"), y, SIZES, E, n, k, n * k, k, 3
    louver.jit(experts_in_turn.experts_in_turn).emulate[(3,)](*given, **TILE, **flags)
    np.testing.assert_array_equal(y, _by_expert(x.astype(np.float64), w.astype(np.float64).swapaxes(1, 2)))


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("axis", [-1, -2])
def test_columns_of_gradients_are_described(rng: np.random.Generator, axis: int, batch: bool) -> None:
    """Sparse along either axis; as one matrix [E * N, K], the experts' matrices are its parts."""
    n, k = 128, 192
    w = louver.prune(rng.integers(-3, 4, (E, n, k)).astype(np.float16), "2:4", axis=axis)
    dy = rng.integers(-3, 4, (ROWS, n)).astype(np.float16)
    dx = np.full((ROWS, k), np.nan, np.float32)
    weights = louver.compress(w if batch else w.reshape(-1, k), "2:4", axis=axis)
    given = dy, weights, dx, SIZES, E, n, k, 3
    kernel = louver.jit(experts_in_turn.gradients_in_turn)
    assert "computed" not in str(kernel.explain[(3,)](*given, **TILE))
    kernel.emulate[(3,)](*given, **TILE)
    np.testing.assert_array_equal(dx, _by_expert(dy.astype(np.float64), w.astype(np.float64)))


def test_columns_of_gradients_beyond_a_row_are_computed(rng: np.random.Generator) -> None:
    n, k = 64, 160
    w = louver.prune(rng.integers(-3, 4, (E, n, k)).astype(np.float16), "2:4")
    given = np.ones((ROWS, n), np.float16), louver.compress(w, "2:4"), np.ones((ROWS, k), np.float32), SIZES, E, n, k, 1
    assert "computed" in str(louver.jit(experts_in_turn.gradients_in_turn).explain[(1,)](*given, **TILE))
