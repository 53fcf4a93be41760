"""Scales that all columns of a tile have in common are loaded once, where no stored result shows another one."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

from support.triton.equal_elements import block_scales, shared_scales


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


def scaled_by_blocks(rng: np.random.Generator, group: int, tile_n: int) -> tuple[dict[str, Any], Any]:
    """The arguments of a call whose groups of columns and of K have this size, and what it computes."""
    m, n, k, tile_k = 40, 200, 168, 64
    x = rng.integers(-3, 4, (m, k)).astype(ml_dtypes.float8_e4m3fn)
    w = louver.prune(rng.integers(-3, 4, (n, k)).astype(ml_dtypes.float8_e4m3fn), "2:4")
    of_k, of_n = np.arange(k) // tile_k, np.arange(n) // group
    x_scale = rng.integers(1, 5, (m, of_k[-1] + 1)).astype(np.float32)
    w_scale = rng.integers(1, 5, (of_n[-1] + 1, of_k[-1] + 1)).astype(np.float32)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": np.full((m, n), np.nan, np.float32)}
    given |= {"x_scale": x_scale, "w_scale": w_scale, "M": m, "N": n, "K": k, "group_n": group, "group_k": tile_k}
    left, right = x.astype(np.float64) * x_scale[:, of_k], w.astype(np.float64) * w_scale[of_n][:, of_k]
    return given | {"TM": 32, "TN": tile_n, "TK": tile_k}, left @ right.T


@pytest.mark.parametrize("groups", [(128, 96, 64), (40, 192), (64, 128)])
def test_a_group_size_that_is_an_argument(rng: np.random.Generator, groups: tuple[int, ...]) -> None:
    """The kernel for groups of whole tiles loads one scale for a tile; other calls of it have a kernel of their own."""
    kernel, texts = louver.jit(block_scales), list[str]()
    for group in groups:
        given, expected = scaled_by_blocks(rng, group, 64)
        kernel.emulate[2, 4](**given)
        np.testing.assert_array_equal(given["y"], expected)
        texts.append(kernel.explain[2, 4](**given).ptx)
        loads = re.findall(r"ld\.global\S*32 ", texts[-1])
        assert bool(loads) == (group % 64 == 0), "other scales come by copies"
    assert len(set(texts)) == len({group % 64 == 0 for group in groups}), "a kernel serves all multiples"
