"""Rows that wrap within their tile are plain rows of a tensor with at least so many rows; of a smaller one they do wrap."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.wrapped_ranges import wrapped_ranges


@pytest.mark.parametrize(
    ("m", "n", "boxes"),
    [(128, 192, True), (100, 80, True), (64, 64, True), (40, 128, False), (64, 40, False)],
    ids=["whole tiles", "parts", "one tile", "few rows of x", "few rows of w"],
)
def test_rows_that_wrap_within_their_tile(rng: np.random.Generator, m: int, n: int, *, boxes: bool) -> None:
    k, tile = 160, (64, 64, 64)
    x = rng.standard_normal((m, k)).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k)).astype(np.float16), "2:4")
    y = np.full((m, n), np.nan, np.float32)
    grid = -(-m // 64), -(-n // 64)
    given = x, louver.compress(w, "2:4"), y, m, n, k, *tile
    kernel = louver.jit(wrapped_ranges)
    assert ("computed" not in str(kernel.explain[grid](*given))) == boxes
    kernel.emulate[grid](*given)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.T.astype(np.float64), rtol=1e-3, atol=1e-3)
