"""Kernels whose dots have three axes: one tile holds a matrix for each head. Against float64."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from louver.ir.refusal import UnsupportedKernelError

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

HEADS, M, N, K = 2, 24, 40, 80


@triton.jit
def heads_in_one_program(
    x, w, scale, y, total, M, N, K, HEADS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Pointers that move, a scale of each head, the product of each head and the sum of all of them."""
    head = tl.arange(0, HEADS)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + head[:, None, None] * M * K + m[None, :, None] * K + k[None, None, :]
    w_at = w + head[:, None, None] * N * K + n[None, :, None] * K + k[None, None, :]
    made = tl.zeros((HEADS, BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = (first + k < K)[None, None, :]
        one = tl.load(x_at, mask=(m < M)[None, :, None] & inside, other=0.0)
        two = tl.load(w_at, mask=(n < N)[None, :, None] & inside, other=0.0)
        made = tl.dot(one, tl.trans(two, (0, 2, 1)), made)
        x_at += BK
        w_at += BK
    made *= tl.load(scale + head)[:, None, None]
    inside = (m < M)[:, None] & (n < N)[None, :]
    at = m[:, None] * N + n[None, :]
    tl.store(total + at, tl.sum(made, axis=0), mask=inside)
    tl.store(y + head[:, None, None] * M * N + at[None, :, :], made, mask=inside[None, :, :])


@triton.jit
def attention_of_heads(
    q, k, v, y, best, S, causal, HEADS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BS: tl.constexpr
):  # fmt: skip
    """Softmax over pruned keys: maxima and sums along the last axis are carried, and a branch changes the scores."""
    head = tl.arange(0, HEADS)[:, None, None]
    m = tl.arange(0, BM)
    d = tl.arange(0, D)
    tile = tl.load(q + head * BM * D + m[None, :, None] * D + d[None, None, :])
    top = tl.full((HEADS, BM), -1.0e30, dtype=tl.float32)
    weight = tl.zeros((HEADS, BM), dtype=tl.float32)
    made = tl.zeros((HEADS, BM, D), dtype=tl.float32)
    for first in range(0, S, BS):
        s = first + tl.arange(0, BS)
        at = head * S * D + s[None, :, None] * D + d[None, None, :]
        keys = tl.load(k + at, mask=(s < S)[None, :, None], other=0.0)
        values = tl.load(v + at, mask=(s < S)[None, :, None], other=0.0)
        scores = tl.dot(tile, tl.permute(keys, (0, 2, 1)))
        if causal:
            scores = tl.where(m[None, :, None] >= s[None, None, :], scores, -1.0e30)
        scores = tl.where((s < S)[None, None, :], scores, -1.0e30)
        above = tl.maximum(top, tl.max(scores, axis=2))
        shrunk = tl.exp(top - above)
        shares = tl.exp(scores - above[:, :, None])
        weight = weight * shrunk + tl.sum(shares, axis=2)
        made = tl.dot(shares.to(tl.float16), values, made * shrunk[:, :, None])
        top = above
    tl.store(best + tl.arange(0, HEADS)[:, None] * BM + m[None, :], top)
    tl.store(y + head * BM * D + m[None, :, None] * D + d[None, None, :], made / weight[:, :, None])


@pytest.mark.parametrize("run", ["emulate", "interpreter"])
@pytest.mark.parametrize("tile", [(16, 32, 32), (32, 64, 64)])
def test_heads_in_one_program(rng: np.random.Generator, tile: tuple[int, int, int], run: str) -> None:
    x = rng.standard_normal((HEADS, M, K)).astype(np.float16)
    w = louver.prune(rng.standard_normal((HEADS, N, K)).astype(np.float16), "2:4")
    scale = rng.standard_normal(HEADS).astype(np.float32)
    y, total = np.full((HEADS, M, N), np.nan, np.float32), np.full((M, N), np.nan, np.float32)
    sizes = dict(zip(("BM", "BN", "BK"), tile, strict=True))
    kernel = louver.jit(heads_in_one_program)
    grid = (-(-M // tile[0]), -(-N // tile[1]))
    (kernel.emulate if run == "emulate" else kernel)[grid](
        x, louver.compress(w, "2:4"), scale, y, total, M, N, K, HEADS=HEADS, **sizes
    )
    expected = x.astype(np.float64) @ w.astype(np.float64).swapaxes(1, 2) * scale[:, None, None]
    np.testing.assert_allclose(y, expected, atol=0.02)
    np.testing.assert_allclose(total, expected.sum(0), atol=0.04)


@pytest.mark.parametrize("causal", [0, 2])
def test_attention_of_heads(rng: np.random.Generator, causal: int) -> None:
    rows, keys, width = 16, 40, 64
    q = (rng.standard_normal((HEADS, rows, width)) * 0.2).astype(np.float16)
    k = louver.prune(rng.standard_normal((HEADS, keys, width)).astype(np.float16), "2:4")
    v = rng.standard_normal((HEADS, keys, width)).astype(np.float16)
    y, best = np.full((HEADS, rows, width), np.nan, np.float32), np.full((HEADS, rows), np.nan, np.float32)
    louver.jit(attention_of_heads).emulate[(1,)](
        q, louver.compress(k, "2:4"), v, y, best, keys, causal, HEADS=HEADS, D=width, BM=rows, BS=32
    )
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2)
    if causal:
        scores = np.where(np.arange(rows)[:, None] >= np.arange(keys), scores, -np.inf)
    top = scores.max(2)
    shares = np.exp(scores - top[:, :, None])
    np.testing.assert_allclose(best, top, atol=0.01)
    np.testing.assert_allclose(y, shares / shares.sum(2, keepdims=True) @ v.astype(np.float64), atol=0.01)


@triton.jit
def heads_as_rows(
    x, w, y, M, N, K, HEADS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Tiles of rows that become batches, by pointers that move, and a batch that becomes rows, with a bias of each."""
    rows, columns, k = tl.arange(0, HEADS * BM), tl.arange(0, HEADS * BN), tl.arange(0, BK)
    m, n = tl.program_id(0) * BM + rows % BM, tl.program_id(1) * BN + columns % BN
    x_at = x + (rows // BM * M + m)[:, None] * K + k[None, :]
    w_at = w + (columns // BN * N + n)[:, None] * K + k[None, :]
    made = tl.zeros((HEADS, BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        one = tl.load(x_at, mask=(m < M)[:, None] & (first + k < K)[None, :], other=0.0).reshape(HEADS, BM, BK)
        two = tl.load(w_at, mask=(n < N)[:, None] & (first + k < K)[None, :], other=0.0).reshape(HEADS, BN, BK)
        made = tl.dot(one, tl.trans(two, (0, 2, 1)), made)
        x_at += BK
        w_at += BK
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    joined = made.reshape(HEADS * BM, BN) + m[:, None]
    at = y + (rows // BM * M + m)[:, None] * N + n[None, :]
    tl.store(at, joined, mask=(m < M)[:, None] & (n < N)[None, :])


def test_heads_as_rows(rng: np.random.Generator) -> None:
    x = rng.standard_normal((HEADS, M, K)).astype(np.float16)
    w = louver.prune(rng.standard_normal((HEADS, N, K)).astype(np.float16), "2:4")
    y = np.full((HEADS, M, N), np.nan, np.float32)
    known = {"HEADS": HEADS, "BM": 16, "BN": 32, "BK": 64}
    louver.jit(heads_as_rows).emulate[(2, 2)](x, louver.compress(w, "2:4"), y, M, N, K, **known)
    wanted = x.astype(np.float64) @ w.astype(np.float64).swapaxes(1, 2) + np.arange(M)[:, None]
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)


@triton.jit
def flat_batch(y, w, x, best, T: tl.constexpr, HEADS: tl.constexpr):
    """Tiles of one axis that become batches, and a batch that becomes a tile of one axis."""
    flat = tl.arange(0, HEADS * T * T)
    left, right = tl.load(w + flat).reshape(HEADS, T, T), tl.load(x + flat).reshape(HEADS, T, T)
    made = tl.dot(left, tl.trans(right, (0, 2, 1)))
    tl.store(y + flat, made.reshape(HEADS * T * T))
    tl.store(best + tl.arange(0, HEADS * T), tl.max(made, axis=2).reshape(HEADS * T))


@pytest.mark.parametrize("heads", [1, 4])
def test_a_flat_batch(heads: int, rng: np.random.Generator) -> None:
    side = 32
    w = louver.prune(rng.standard_normal((heads, side, side)).astype(np.float16), "2:4")
    x = rng.standard_normal((heads, side, side)).astype(np.float16)
    y, best = np.full((heads, side, side), np.nan, np.float32), np.full((heads, side), np.nan, np.float32)
    louver.jit(flat_batch).emulate[(1,)](y, louver.compress(w, "2:4"), x, best, T=side, HEADS=heads)
    wanted = w.astype(np.float64) @ x.astype(np.float64).swapaxes(1, 2)
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(best, wanted.max(2), rtol=1e-3, atol=1e-3)


@triton.jit
def moved_batch(y, w, HOW: tl.constexpr, T: tl.constexpr):
    """HOW: the batch becomes the second axis, rows of two matrices are multiplied together, or summed together."""
    b, i, k = tl.arange(0, 2), tl.arange(0, T), tl.arange(0, T)
    tile = tl.load(w + b[:, None, None] * T * T + i[None, :, None] * T + k[None, None, :])
    made = tl.dot(tile, tile)
    rows = tl.arange(0, 2 * T)[:, None]
    if HOW == "moved":
        tl.store(y + i[:, None, None] * 2 * T + b[None, :, None] * T + k[None, None, :], tl.trans(made, (1, 0, 2)))
    elif HOW == "multiplied":
        joined = tl.reshape(made, (2 * T, T)).to(tl.float16)
        tl.store(y + rows * T + k[None, :], tl.dot(joined, tl.load(w + i[:, None] * T + k[None, :])))
    else:
        tl.store(y + k, tl.sum(tl.reshape(made, (2 * T, T)), axis=0))


@pytest.mark.parametrize(("how", "line"), [("moved", "tl.trans"), ("multiplied", "tl.dot"), ("summed", "tl.sum")])
def test_a_batch_that_does_not_stay_first_says_what_to_write(how: str, line: str, rng: np.random.Generator) -> None:
    w = louver.prune(rng.standard_normal((2, 32, 32)).astype(np.float16), "2:4")
    with pytest.raises(
        UnsupportedKernelError,
        match=rf"stays the first one .*got at .*{line}.*own program, such as tl.program_id\(2\)",
    ):
        louver.jit(moved_batch).emulate[(1,)](np.empty((64, 32), np.float32), louver.compress(w, "2:4"), HOW=how, T=32)
