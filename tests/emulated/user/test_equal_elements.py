"""Scales that all columns of a tile have in common are loaded once, where no stored result shows another one."""

from __future__ import annotations

import importlib.util
import re

import ml_dtypes
import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.equal_elements import shared_scales


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(
    ("n", "group", "tile_n", "once"),
    [(256, 128, 128, True), (200, 128, 64, True), (72, 64, 64, True), (200, 64, 128, False), (130, 96, 64, False)],
)
def test_columns_of_one_block_share_a_scale(
    rng: np.random.Generator, n: int, group: int, tile_n: int, once: bool, moved: bool
) -> None:
    """The last tile's columns wrap to another block, whose results no store writes."""
    m, k, tile_k = 40, 200, 64
    x = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.float8_e4m3fn)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(ml_dtypes.float8_e4m3fn), "2:4")
    steps = -(-k // tile_k)
    x_scale = rng.integers(1, 5, (m, steps)).astype(np.float32)
    w_scale = rng.integers(1, 5, (-(-n // group), steps)).astype(np.float32)
    y = np.full((m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), y, x_scale, w_scale, m, n, k, group
    more = {"TM": 32, "TN": tile_n, "TK": tile_k, "MASKED": True, "MOVED": moved}
    kernel, grid = louver.jit(shared_scales), (-(-m // 32), -(-n // tile_n))
    kernel.emulate[grid](*given, **more)
    columns = np.repeat(np.arange(steps), tile_k)[:k]
    left = x.astype(np.float64) * x_scale[:, columns]
    right = w.astype(np.float64) * w_scale[np.arange(n) // group][:, columns]
    np.testing.assert_array_equal(y, left @ right.T)
    loads = re.findall(r"ld\.global\S*32 ", kernel.explain[grid](*given, **more).ptx)
    assert bool(loads) == once, "other scales come by copies"


def test_rows_that_are_stored_keep_their_own_scale(rng: np.random.Generator) -> None:
    """Columns that wrap are stored twice, with equal values: each needs the scale of the column that it is."""
    m, n, k = 32, 80, 64
    x = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.float8_e4m3fn)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(ml_dtypes.float8_e4m3fn), "2:4")
    x_scale, w_scale = np.ones((m, 1), np.float32), np.array([[2.0], [3.0]], np.float32)
    y = np.full((m, n), np.nan, np.float32)
    louver.jit(shared_scales).emulate[(1, 2)](
        x, louver.compress(w, "2:4"), y, x_scale, w_scale, m, n, k, 64, TM=32, TN=64, TK=64, MASKED=False, MOVED=False
    )
    right = w.astype(np.float64) * w_scale[np.arange(n) // 64]
    np.testing.assert_array_equal(y, x.astype(np.float64) @ right.T)
