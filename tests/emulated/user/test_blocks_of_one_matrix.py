"""A batch of one matrix, read by blocks of its rows at a number that is loaded: a block is no matrix of the batch."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

M, N, K, BLOCK = 64, 256, 128, 64


@triton.jit
def listed_blocks(
    x, w, y, heads, blocks, rows, K, swe, MASKED: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """x times the listed blocks of rows of w. Rows are masked, or begin again behind the tile."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BLOCK), tl.arange(0, BK)
    head, block = tl.load(heads + tl.program_id(0)), tl.load(blocks + tl.program_id(0))
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + head * swe + block * BLOCK * K + (n if MASKED else n % BLOCK)[:, None] * K + k[None, :]
    mask = (n < rows)[:, None] & (k < K)[None, :] if MASKED else (k < K)[None, :]
    total = tl.zeros((BM, BLOCK), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(x_at), tl.load(w_at, mask=mask, other=0.0).T, total)
        x_at += BK
        w_at += BK
    tl.store(y + tl.program_id(0) * BM * BLOCK + m[:, None] * BLOCK + n[None, :], total)


@pytest.mark.parametrize("rows", [None, 40, 64], ids=["unmasked", "40 rows", "all rows"])
def test_listed_blocks_of_a_single_matrix(rng: np.random.Generator, rows: int | None) -> None:
    blocks = np.array([2, 0, 3, 1], np.int32)
    x = rng.standard_normal((M, K)).astype(np.float16)
    w = louver.prune(rng.standard_normal((1, N, K)).astype(np.float16), "2:4")
    y = np.full((len(blocks), M, BLOCK), np.nan, np.float32)
    given = (x, louver.compress(w, "2:4"), y, np.zeros_like(blocks), blocks, rows or 0, K, N * K, rows is not None)
    kernel = louver.jit(listed_blocks)
    kernel.emulate[(len(blocks),)](*given, M, BLOCK, 64)
    wanted = x.astype(np.float64) @ w.reshape(-1, BLOCK, K)[blocks].astype(np.float64).swapaxes(1, 2)
    wanted[..., BLOCK if rows is None else rows :] = 0
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-4)


def test_rows_that_never_begin_again_come_by_boxes(rng: np.random.Generator) -> None:
    """`arange(0, 64) % 64` is `arange(0, 64)`: such rows have no size, and blocks of them are rows of the matrix."""
    x, blocks = rng.standard_normal((M, K)).astype(np.float16), np.array([2, 0], np.int32)
    w = louver.compress(louver.prune(rng.standard_normal((1, N, K)).astype(np.float16), "2:4"), "2:4")
    y, kernel = np.zeros((2, M, BLOCK), np.float32), louver.jit(listed_blocks)
    found = kernel.explain[(2,)](x, w, y, np.zeros_like(blocks), blocks, 0, K, N * K, False, M, BLOCK, 64)
    assert "computed addresses" not in str(found) and "cp.async.bulk.tensor" in found.ptx
