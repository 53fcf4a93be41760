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


@triton.jit
def few_rows_in_groups(
    x, w, y, M, N, K, GROUP: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A group has more tiles of rows than the output. Columns of the weight are not masked: N is whole tiles."""
    tile, part = tl.program_id(0), tl.program_id(1)
    tiles_m, wide = tl.cdiv(M, BM), GROUP * tl.cdiv(N, BN)
    first = tile // wide * GROUP
    high = min(tiles_m - first, GROUP)
    m = (first + tile % high) * BM + tl.arange(0, BM)
    n, k = (tile % wide) // high * BN + tl.arange(0, BN), part * BK + tl.arange(0, BK)
    x_at, w_at = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, PARTS * BK)):
        total = tl.dot(tl.load(x_at, mask=m[:, None] < M, other=0.0), tl.load(w_at), total)
        x_at += PARTS * BK
        w_at += PARTS * BK
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=m[:, None] < M, sem="relaxed")


@pytest.mark.parametrize("rows", [10, 40])
def test_boxes_where_a_group_is_larger_than_the_output(rows: int) -> None:
    """`tile % (GROUP * tiles_n)` is below the number of programs too, so that no column is beyond the weight."""
    rng = np.random.default_rng(rows)
    w = louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4")
    x, y = rng.standard_normal((rows, K)).astype(np.float16), np.zeros((rows, N), np.float32)
    kernel, grid = louver.jit(few_rows_in_groups), (-(-rows // 16) * (N // 128), 2)
    sizes = {"M": rows, "N": N, "K": K, "GROUP": 8, "PARTS": 2, "BM": 16, "BN": 128, "BK": 64}
    call = {"x": x, "w": louver.compress(w, "2:4"), "y": y, **sizes}
    told = kernel.explain[grid](**call)
    assert told.family == "register tiles" and told.warning is None
    assert "cp.async.bulk.tensor" in told.ptx
    kernel.emulate[grid](**call)
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.astype(np.float64).T, rtol=1e-3, atol=1e-3)
