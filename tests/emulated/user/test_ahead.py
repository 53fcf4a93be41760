"""Sparse tiles are described where a loop makes their pointers or columns for later steps."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import ahead

M, N = 40, 72
TILE = {"TM": 32, "TN": 64, "TK": 64}


def _operands(rng: np.random.Generator, k: int) -> tuple[np.ndarray, np.ndarray]:
    w = rng.integers(-3, 4, (N, k)).astype(np.float16)
    return rng.integers(-3, 4, (M, k)).astype(np.float16), louver.prune(w, "2:4")


@pytest.mark.parametrize("k", [64, 128, 320])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_pointers_of_later_steps(rng: np.random.Generator, steps: int, k: int) -> None:
    x, w = _operands(rng, k)
    y = np.full((M, N), np.nan, np.float32)
    kernel, grid = louver.jit(ahead.pointers_ahead), (2, 2)
    given = x, louver.compress(w, "2:4"), y, M, N, k, 1, steps
    assert kernel.explain[grid](*given, **TILE).family == "product"
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize(("k", "parts"), [(256, 1), (256, 2), (320, 2), (64, 3)])
def test_columns_of_the_next_step_in_parts_of_k(rng: np.random.Generator, k: int, parts: int) -> None:
    x, w = _operands(rng, k)
    y = np.full((parts, M, N), np.nan, np.float32)
    kernel, grid = louver.jit(ahead.offsets_ahead), (2, 2, parts)
    given = x, louver.compress(w, "2:4"), y, M, N, k, parts
    assert "computed" not in str(kernel.explain[grid](*given, **TILE))
    kernel.emulate[grid](*given, **TILE)
    np.testing.assert_array_equal(y.sum(0), x.astype(np.float64) @ w.T.astype(np.float64))
