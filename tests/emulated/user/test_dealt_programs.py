"""Programs that are dealt to the parts of a GPU: neighbouring tiles, and the parts of K of one tile, go to the same part."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

import louver

M, N, K = 256, 384, 1024
TILES = 2 * 3
PARTS_OF_GPU, SPLITS = 8, 4


@triton.jit
def dealt(number, COUNT: tl.constexpr, PARTS: tl.constexpr):
    """The number that a program takes: programs that follow each other run on different parts of the GPU."""
    each = (COUNT + PARTS - 1) // PARTS
    fuller = COUNT % PARTS
    fuller = PARTS if fuller == 0 else fuller
    part, place = number % PARTS, number // PARTS
    if part < fuller:
        number = part * each + place
    else:
        number = fuller * each + (part - fuller) * (each - 1) + place
    return number


@triton.jit
def dealt_product(
    x, w, y, M, N, K, COUNT: tl.constexpr, PARTS: tl.constexpr, SPLITS: tl.constexpr, SPAN: tl.constexpr,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    number = dealt(tl.program_id(0), COUNT * SPLITS, PARTS)
    part, tile = number % SPLITS, number // SPLITS
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    if GROUP == 1:
        tile_m, tile_n = tile // tiles_n, tile % tiles_n
    else:
        first = tile // (GROUP * tiles_n) * GROUP
        high = min(tiles_m - first, GROUP)
        tile_m, tile_n = first + tile % high, tile % (GROUP * tiles_n) // high
    m = (tile_m * BM + tl.arange(0, BM)) % M
    n = (tile_n * BN + tl.arange(0, BN)) % N
    k = part * SPAN + tl.arange(0, BK)
    x_at, w_at = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(SPAN // BK):
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
        x_at += BK
        w_at += BK
    row, column = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.atomic_add(y + row[:, None] * N + column[None, :], total, mask=inside, sem="relaxed")


@pytest.mark.parametrize("splits", [1, SPLITS])
@pytest.mark.parametrize("parts", [8, 4, 6])
@pytest.mark.parametrize("group", [1, 2])
def test_boxes_of_dealt_programs(splits: int, parts: int, group: int) -> None:
    rng = np.random.default_rng(splits + parts + group)
    x, w = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, N))
    w, y = louver.prune(w, "2:4"), np.zeros((M, N), np.float32)
    kernel, grid = louver.jit(dealt_product), (TILES * splits,)
    call = {
        "x": x,
        "w": louver.compress(w, "2:4"),
        "y": y,
        "M": M,
        "N": N,
        "K": K,
        "COUNT": TILES,
        "PARTS": parts,
        "SPLITS": splits,
    }
    tile = {"SPAN": K // splits, "GROUP": group, "BM": 128, "BN": 128, "BK": 64}
    found = kernel.explain[grid](**call, **tile)
    assert found.warning is None and "computed addresses" not in str(found)
    kernel.emulate[grid](**call, **tile)
    wanted = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(y, wanted, rtol=2e-3, atol=2e-2)
