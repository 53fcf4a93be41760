"""Block-sparse matrices: in each step, the first column of a tile is that of a block whose number is loaded."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

BLOCKS = 3
"""Blocks in a row of a block-sparse matrix of 8."""


@triton.jit
def times_blocks(
    x, w, y, starts, columns, N, sxm, sxk, swn, swk, BM: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr
):
    """x times a block-sparse weight, of which the blocks of a row follow one another in memory."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BLOCK), tl.arange(0, BK)
    start, end = tl.load(starts + tl.program_id(1)), tl.load(starts + tl.program_id(1) + 1)
    x += m[:, None] * sxm + k[None, :] * sxk
    w += k[:, None] * swk + n[None, :] * swn
    steps: tl.constexpr = BLOCK // BK
    total = tl.zeros((BM, BLOCK), dtype=tl.float32)
    for step in range(steps * (end - start)):
        inner, block = step % steps, step // steps
        w_at = w + (start + block) * (BLOCK * BLOCK) + inner * (BK * swk)
        x_at = x + tl.load(columns + start + block) * (BLOCK * sxk) + inner * (BK * sxk)
        total += tl.dot(tl.load(x_at), tl.load(w_at))
    out = tl.program_id(1) * BLOCK + n
    tl.store(y + m[:, None] * N + out[None, :], total)


@triton.jit
def blocks_times(
    x, w, y, starts, columns, N, sxm, sxk, swn, swk, BN: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr
):
    """A block-sparse x, of which the blocks of a row follow one another in memory, times a weight."""
    m, n, k = tl.arange(0, BLOCK), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    start, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    x += m[:, None] * sxm + k[None, :] * sxk
    w += k[:, None] * swk + n[None, :] * swn
    steps: tl.constexpr = BLOCK // BK
    total = tl.zeros((BLOCK, BN), dtype=tl.float32)
    for step in range(steps * (end - start)):
        inner, block = step % steps, step // steps
        x_at = x + (start + block) * (BLOCK * BLOCK) + inner * (BK * sxk)
        w_at = w + tl.load(columns + start + block) * (BLOCK * swk) + inner * (BK * swk)
        total += tl.dot(tl.load(x_at), tl.load(w_at))
    out = tl.program_id(0) * BLOCK + m
    tl.store(y + out[:, None] * N + n[None, :], total)


@triton.jit
def listed_on_the_way(x, w, y, columns, K, N, STEPS: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """x times w, for columns in an order that each step writes for the next one."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BM), tl.arange(0, BK)
    total = tl.zeros((BM, BM), dtype=tl.float32)
    for step in range(STEPS):
        first = tl.load(columns + step) * BK
        a = tl.load(x + m[:, None] * K + (first + k)[None, :])
        total += tl.dot(a, tl.load(w + n[None, :] * K + (first + k)[:, None]))
        tl.store(columns + step + 1, (first // BK + 3) % STEPS)
    tl.store(y + m[:, None] * N + n[None, :], total)


def _topology(rng: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The first block of each row of blocks, and the column of each block. One row is empty."""
    counts = [BLOCKS if row != 1 else 0 for row in range(rows)]
    columns = [each for count in counts for each in rng.permutation(8)[:count]]
    return np.cumsum([0, *counts]).astype(np.int32), np.array(columns, np.int16)


def _made(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-3, 4, shape).astype(np.float16)


def _columns(explained: object) -> str:
    """The columns that a step multiplies."""
    return str(explained).partition("wgmma.sp of ")[2].partition(",")[0].split("×")[-1]


@pytest.mark.parametrize(("block", "step", "columns"), [(128, 32, "64"), (64, 32, "64"), (128, 64, "64")])
def test_a_block_sparse_weight_comes_by_boxes(rng: np.random.Generator, block: int, step: int, columns: str) -> None:
    starts, at = _topology(rng, 3)
    m, k, n = 128, 8 * block, 3 * block
    x, w = _made(rng, (m, k)), louver.prune(_made(rng, (len(at), block, block)), "2:4")
    dense = np.zeros((n, k))
    for row, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
        for each in range(first, last):
            dense[row * block :, at[each] * block :][:block, :block] = w[each]
    y = np.full((m, n), np.nan, np.float32)
    given = x, louver.compress(w, "2:4"), y, starts, at, n, k, 1, block, 1, 128, block, step
    kernel = louver.jit(times_blocks)
    kernel.emulate[(1, 3)](*given)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ dense.T)
    explained = kernel.explain[(1, 3)](*given)
    assert _columns(explained) == columns
    assert "cp.async.cg" not in explained.ptx and "cp.async.ca" not in explained.ptx
    # x, values and metadata: for the first steps, and in the loop.
    assert "cp.async.bulk.tensor.3d" in explained.ptx and "cp.async.bulk.tensor.2d" in explained.ptx


def _weight(
    rng: np.random.Generator, block: int, step: int, count: int = 8, *, across: bool = False
) -> tuple[tuple[object, ...], np.ndarray, np.ndarray]:
    """The arguments of `blocks_times`, with a weight of `count` blocks in a row, y, and what is to be in it."""
    starts, at = _topology(rng, 3)
    at %= count
    m, k, n = 3 * block, count * block, 128
    x, w = _made(rng, (len(at), block, block)), louver.prune(_made(rng, (n, k)), "2:4")
    wanted = np.zeros((m, n))
    for row, (first, last) in enumerate(zip(starts, starts[1:], strict=False)):
        for each in range(first, last):
            columns = w[:, at[each] * block :][:, :block].astype(np.float64)
            wanted[row * block :][:block] += x[each].astype(np.float64) @ columns.T
    y = np.full((m, n), np.nan, np.float32)
    kept = louver.compress(np.ascontiguousarray(w.T), "2:4", axis=0) if across else louver.compress(w, "2:4")
    swn, swk = (1, n) if across else (k, 1)
    return (x, kept, y, starts, at, n, block, 1, swn, swk, 128, block, step), y, wanted


ACROSS = pytest.mark.parametrize("across", [False, True], ids=["sparse along the last axis", "along the last but one"])


@ACROSS
@pytest.mark.parametrize(("block", "step"), [(128, 32), (64, 32), (64, 64)])
def test_loaded_columns_of_a_weight_come_by_boxes(
    rng: np.random.Generator, block: int, step: int, across: bool
) -> None:
    given, y, wanted = _weight(rng, block, step, across=across)
    kernel = louver.jit(blocks_times)
    kernel.emulate[(3, 1)](*given)
    np.testing.assert_array_equal(y, wanted)
    explained = kernel.explain[(3, 1)](*given)
    assert _columns(explained) == "64"
    assert "computed addresses" not in str(explained) and "cp.async.c" not in explained.ptx
    # Products run on while those of the next step begin.
    assert "wgmma.wait_group.sync.aligned 1" in explained.ptx


@ACROSS
@pytest.mark.parametrize("wrong", [8, -1])
def test_a_block_outside_of_the_row_is_reported(rng: np.random.Generator, wrong: int, across: bool) -> None:
    given, _, _ = _weight(rng, 64, 32, across=across)
    given[4][-1] = wrong  # type: ignore[index]
    with pytest.raises(louver.AddressError):
        louver.jit(blocks_times).emulate[(3, 1)](*given)


@ACROSS
def test_columns_of_computed_tiles_are_copied_ahead(rng: np.random.Generator, across: bool) -> None:
    """With one block in a row, numbers above 0 would go to further rows."""
    given, y, wanted = _weight(rng, 64, 32, 1, across=across)
    kernel = louver.jit(blocks_times)
    kernel.emulate[(3, 1)](*given)
    np.testing.assert_array_equal(y, wanted)
    explained = kernel.explain[(3, 1)](*given)
    assert "computed addresses" in str(explained) and "cp.async.cg" in explained.ptx
    assert "wgmma.wait_group.sync.aligned 1" in explained.ptx


@triton.jit
def rows_at_once(x, w, y, first, stride, K: tl.constexpr, BN: tl.constexpr):
    """x [BN, K] times w [N, K] from a row on that is loaded, in twos: a number times whole tiles that moves rows."""
    n, k = tl.arange(0, BN), tl.arange(0, K)
    total = tl.zeros((BN, BN), dtype=tl.float32)
    for step in range(2):
        a = tl.load(x + step * BN * K + n[:, None] * K + k[None, :])
        b = tl.load(w + tl.load(first + step) * (2 * K) + n[None, :] * stride + k[:, None])
        total += tl.dot(a, b)
    tl.store(y + n[:, None] * BN + n[None, :], total)


def test_loaded_numbers_may_move_whole_rows(rng: np.random.Generator) -> None:
    x, w, first = _made(rng, (2, 64, 64)), louver.prune(_made(rng, (256, 64)), "2:4"), np.array([7, 90], np.int32)
    y = np.full((64, 64), np.nan, np.float32)
    louver.jit(rows_at_once).emulate[(1,)](x, louver.compress(w, "2:4"), y, first, 64, 64, 64)
    parts = [x[step].astype(np.float64) @ w[2 * at :][:64].astype(np.float64).T for step, at in enumerate(first)]
    np.testing.assert_array_equal(y, sum(parts))


def test_what_a_step_stores_is_loaded_by_the_next_one(rng: np.random.Generator) -> None:
    steps, k = 8, 8 * 64
    x, w = _made(rng, (64, k)), louver.prune(_made(rng, (64, k)), "2:4")
    y, columns = np.full((64, 64), np.nan, np.float32), np.zeros(steps + 1, np.int32)
    louver.jit(listed_on_the_way).emulate[(1,)](x, louver.compress(w, "2:4"), y, columns, k, 64, steps, 64, 64)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w.astype(np.float64).T)
    np.testing.assert_array_equal(columns, np.arange(steps + 1) * 3 % steps)
