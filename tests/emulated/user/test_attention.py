"""Attention over a pruned cache: scores of a sparse right operand are reduced along rows, and multiplied again."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver
from louver.measure.forms import Draw, wide

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl


@triton.jit
def attend(
    q, keys, values, y, Q, S, scale, head_q, head_s,
    D: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Rows of q [H, Q, D] attend to keys and values [H, S, D]; keys are pruned along D."""
    head = tl.program_id(1)
    m, d, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    one = tl.load(q + head * head_q + m[:, None] * D + d[None, :], mask=m[:, None] < Q, other=0.0)
    place = head * head_s + n[:, None] * D + d[None, :]
    most, total = tl.full((BM,), float("-inf"), tl.float32), tl.zeros((BM,), tl.float32)
    out = tl.zeros((BM, D), tl.float32)
    for first in range(0, S, BN):
        inside = (first + n)[:, None] < S
        scores = tl.dot(one, tl.load(keys + place, mask=inside, other=0.0).T) * scale
        seen = (first + n)[None, :] < S
        if CAUSAL:
            seen = seen & (m[:, None] >= (first + n)[None, :])
        scores = tl.where(seen, scores, float("-inf"))
        now = tl.maximum(most, tl.max(scores, 1))
        weights, old = tl.exp(scores - now[:, None]), tl.exp(most - now)
        total = total * old + tl.sum(weights, 1)
        out = tl.dot(weights.to(tl.float16), tl.load(values + place, mask=inside, other=0.0), out * old[:, None])
        most, place = now, place + BN * D
    tl.store(
        y + head * head_q + m[:, None] * D + d[None, :], (out / total[:, None]).to(tl.float16), mask=m[:, None] < Q
    )


@pytest.mark.parametrize(
    ("tile", "warps", "causal", "sizes"),
    [
        ((128, 64), 8, True, (130, 200)),
        ((128, 64), 4, False, (128, 128)),
        ((64, 64), 4, True, (100, 100)),
        ((64, 128), 8, False, (64, 77)),
        ((64, 32), 4, False, (65, 40)),
        ((16, 64), 4, True, (33, 70)),
        ((128, 16), 8, False, (128, 24)),
    ],
)
def test_scores_of_pruned_keys(
    rng: np.random.Generator, tile: tuple[int, int], warps: int, causal: bool, sizes: tuple[int, int]
) -> None:
    (queries, keys), depth, heads = sizes, 64, 2
    draw = Draw(rng)
    q, v, k = draw.dense(heads, queries, depth), draw.dense(heads, keys, depth), draw.pruned(heads, keys, depth)
    y = np.full_like(q, np.nan)
    given: dict[str, Any] = {"D": depth, "CAUSAL": causal, "BM": tile[0], "BN": tile[1]}
    run = louver.jit(attend).emulate[-(-queries // tile[0]), heads]
    run(q, louver.compress(k, "2:4"), v, y, queries, keys, 0.3, queries * depth, keys * depth, num_warps=warps, **given)

    scores = np.einsum("hmd,hnd->hmn", wide(q), wide(k)) * 0.3
    if causal:
        scores = np.where(np.arange(queries)[:, None] >= np.arange(keys), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    expected = weights / weights.sum(2, keepdims=True) @ wide(v)
    np.testing.assert_allclose(wide(y), expected, rtol=4e-3, atol=4e-3)


def test_scores_change_threads_once(rng: np.random.Generator) -> None:
    """As computed, warps share the rows of a transposed product: each reduction would meet them all."""
    tile, heads, (queries, keys, depth) = (128, 64), 1, (128, 64, 64)
    draw = Draw(rng)
    q, k = draw.dense(heads, queries, depth), louver.compress(draw.pruned(heads, keys, depth), "2:4")
    given: dict[str, Any] = {"D": depth, "CAUSAL": True, "BM": tile[0], "BN": tile[1], "num_warps": 8}
    call = (q, k, q, q.copy(), queries, keys, 0.3, queries * depth, keys * depth)
    text = louver.jit(attend).explain(*call, **given).ptx
    loop = text[text.index("wgmma.mma_async.sp") :]
    assert loop[: loop.index("wgmma.mma_async.sync")].count("bar.sync") <= 2, (
        "scores are exchanged by one store and load"
    )
