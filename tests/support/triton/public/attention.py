"""Flash attention over pruned keys or values."""

from __future__ import annotations

from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide
from support.triton.public.common import swapped

HEADS = 2
SCALE = 0.2


@triton.jit
def flash_attention(
    q, k, v, y, QUERIES, KEYS, scale, stride_qh, stride_kh, D: tl.constexpr, CAUSAL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Flash attention: y [heads, QUERIES, D] of q, and of k and v [heads, KEYS, D]. Pointers move by blocks of keys."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    m = tile * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    place = head * stride_qh + m[:, None] * D + d[None, :]
    rows = tl.load(q + place, mask=m[:, None] < QUERIES, other=0.0)
    k_at = k + head * stride_kh + n[None, :] * D + d[:, None]
    v_at = v + head * stride_kh + n[:, None] * D + d[None, :]
    most = tl.zeros((BM,), tl.float32) - float("inf")
    weights = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((tile + 1) * BM, KEYS) if CAUSAL else KEYS
    for first in range(0, end, BN):
        first = tl.multiple_of(first, BN)
        keys = tl.load(k_at, mask=(first + n)[None, :] < KEYS, other=0.0)
        score = tl.dot(rows, keys) * scale
        score = tl.where((first + n)[None, :] < KEYS, score, float("-inf"))
        if CAUSAL:
            score = tl.where(m[:, None] >= (first + n)[None, :], score, float("-inf"))
        now = tl.maximum(most, tl.max(score, 1))
        weight = tl.exp2((score - now[:, None]) * 1.44269504)
        shrunk = tl.exp2((most - now) * 1.44269504)
        weights = weights * shrunk + tl.sum(weight, 1)
        total = total * shrunk[:, None]
        values = tl.load(v_at, mask=(first + n)[:, None] < KEYS, other=0.0)
        total = tl.dot(weight.to(tl.float16), values, total)
        most = now
        k_at += BN * D
        v_at += BN * D
    total = total / weights[:, None]
    tl.store(y + place, total.to(tl.float16), mask=m[:, None] < QUERIES)


def _attention(draw: Draw, s: Sizes, *, pruned: str, causal: bool) -> Call:
    """m queries and n keys of k numbers. pruned: "k" along the numbers of a head, or "v" along the keys."""
    q = draw.dense(HEADS, s.m, s.k)
    k = draw.pruned(HEADS, s.n, s.k) if pruned == "k" else draw.dense(HEADS, s.n, s.k)
    v = swapped(draw.pruned(HEADS, s.k, s.n)) if pruned == "v" else draw.dense(HEADS, s.n, s.k)

    def expected() -> dict[str, Array]:
        score = wide(q) @ wide(k).transpose(0, 2, 1) * SCALE
        if causal:
            score = np.where(np.arange(s.m)[:, None] >= np.arange(s.n), score, -np.inf)
        weight = np.exp(score - score.max(2, keepdims=True))
        return {"y": weight @ wide(v) / weight.sum(2, keepdims=True)}

    return Call(
        {
            "q": q, "k": k, "v": v, "y": np.empty((HEADS, s.m, s.k), np.float16), "QUERIES": s.m, "KEYS": s.n,
            "scale": SCALE, "stride_qh": s.m * s.k, "stride_kh": s.n * s.k, "D": s.k, "CAUSAL": causal,
        },
        expected,
        sparse=(pruned,),
        axes={"v": -2} if pruned == "v" else {},
        grid=(s.grid[0], HEADS),
        operations=(2.0 if causal else 4.0) * HEADS * s.m * s.n * s.k,
    )  # fmt: skip


SMALL = Sizes(40, 56, 64, 16, 32, 32)


def _large(*tokens: int) -> tuple[Sizes, ...]:
    return tuple(Sizes(count, count, 128, 128, 64, 64) for count in tokens)


FORMS = (
    Form(
        "causal attention, pruned keys",
        flash_attention,
        partial(_attention, pruned="k", causal=True),
        SMALL,
        _large(4096, 16384),
        "attention",
    ),
    Form(
        "attention, pruned values",
        flash_attention,
        partial(_attention, pruned="v", causal=False),
        SMALL,
        _large(4096, 8192),
        "attention",
    ),
)
