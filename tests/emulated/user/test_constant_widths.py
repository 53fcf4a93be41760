"""Kernels that are compiled for one weight: its sizes are numbers in the kernel, and only the rows of the other operand are an
argument, as `torch.compile` writes them for batches of any size.
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

N, K = 320, 192


@triton.jit
def one_weight(x, w, y, rows, GROUP: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, BM: tl.constexpr):
    """`rows * WIDTH == 0` returns early. Rows wrap in both arms of a branch on `rows`, one of which promises neighbours."""
    if rows * WIDTH == 0:
        return
    program = tl.program_id(0)
    tiles_m, tiles_n = (rows + BM - 1) // BM, (WIDTH + 63) // 64
    wide = GROUP * tiles_n
    group = program // wide
    high = min(tiles_m - group * GROUP, GROUP)
    tile_m, tile_n = group * GROUP + program % high, (program % wide) // high
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * 64 + tl.arange(0, 64)
    if rows >= BM:
        read_m = tl.max_contiguous(tl.multiple_of(m % rows, BM), BM)
    else:
        read_m = m % rows
    read_n = n % WIDTH
    total = tl.zeros((BM, 64), dtype=tl.float32)
    for step in range((DEPTH + 63) // 64):
        k = step * 64 + tl.arange(0, 64)
        left = tl.load(x + read_m[:, None] * DEPTH + k[None, :])
        right = tl.load(w + read_n[None, :] * DEPTH + k[:, None])
        total += tl.dot(left, right)
    tl.store(y + m[:, None] * WIDTH + n[None, :], total, mask=(m[:, None] < rows) & (n[None, :] < WIDTH))


@pytest.mark.parametrize(("rows", "group"), [(100, 64), (7, 64), (130, 8), (300, 3)])
def test_products_of_one_weight(rng: np.random.Generator, rows: int, group: int) -> None:
    """Tiles are numbered by GROUP times the tiles of a row, a constant: 320 is above what is tested for arguments."""
    w = louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4")
    x = rng.standard_normal((rows, K)).astype(np.float16)
    y = np.full((rows, N), np.nan, np.float32)
    kernel, grid = louver.jit(one_weight), (-(-rows // 64) * -(-N // 64),)
    known = {
        "x": x,
        "w": louver.compress(w, "2:4"),
        "y": y,
        "rows": rows,
        "GROUP": group,
        "WIDTH": N,
        "DEPTH": K,
        "BM": 64,
    }
    assert kernel.explain[grid](**known).family == "product"
    kernel.emulate[grid](**known)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-3, atol=1e-3)


def test_no_rows_store_nothing(rng: np.random.Generator) -> None:
    w = louver.compress(louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4"), "2:4")
    x, y = rng.standard_normal((64, K)).astype(np.float16), np.full((64, N), np.nan, np.float32)
    louver.jit(one_weight).emulate[(5,)](x, w, y, 0, GROUP=8, WIDTH=N, DEPTH=K, BM=64)
    assert np.isnan(y).all()
