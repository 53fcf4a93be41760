"""Tiles whose strides are numbers, of which one divides the numbers of another index."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton import constant_strides

M, K, E = 70, 192, 3


@pytest.mark.parametrize(("n", "masked"), [(256, False), (256, True), (192, True), (200, True), (64, False)])
def test_columns_numbered_by_a_remainder_are_described(rng: np.random.Generator, n: int, masked: bool) -> None:
    """TILES * TN columns are one row: their number divides by the stride of rows."""
    x = rng.integers(-3, 4, (M, K)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (E, K, n)).astype(np.float16), "2:4", axis=-2)
    experts = np.array([2, 0, 2], np.int32)
    y = np.full((M, n), np.nan, np.float32)
    kernel, grid = louver.jit(constant_strides.chosen_experts), (3 * -(-n // 64),)
    given = x, louver.compress(w, "2:4", axis=-2), y, experts, M, K * n, K, n, masked
    tile = {"TM": 32, "TN": 64, "TK": 64}
    assert "computed" not in str(kernel.explain[grid](*given, **tile))
    kernel.emulate[grid](*given, **tile)
    of_rows = np.repeat(experts, 32)[:M]
    expected = np.stack([row @ w[e].astype(np.float64) for row, e in zip(x.astype(np.float64), of_rows, strict=True)])
    np.testing.assert_array_equal(y, expected)
