"""Products fused with more: gates, norms, sums of groups, block scales, cross-entropy."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl
from triton.language.extra import libdevice

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide
from support.triton.public.common import SMALL, sigmoid, silu

CAP = 5.0
"""Largest logit of `capped_entropy`, by tanh."""


@triton.jit
def gated_halves(
    x, w, y, M, N, K, stride_xm, stride_wn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """SwiGLU with the gate and the value in halves of one weight [2N, K]: two tiles of it a step."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * stride_xm + k[None, :]
    gate_at = w + n[None, :] * stride_wn + k[:, None]
    value_at = w + (n + N)[None, :] * stride_wn + k[:, None]
    gate = tl.zeros((BM, BN), tl.float32)
    value = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        one = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] + first < K), other=0.0)
        of_gate = tl.load(gate_at, mask=(n[None, :] < N) & (k[:, None] + first < K), other=0.0)
        of_value = tl.load(value_at, mask=(n[None, :] < N) & (k[:, None] + first < K), other=0.0)
        gate = tl.dot(one, of_gate, gate)
        value = tl.dot(one, of_value, value)
        x_at += BK
        gate_at += BK
        value_at += BK
    gate = gate * tl.sigmoid(gate)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], (gate * value).to(y.dtype.element_ty), mask=inside)


def _halves(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k) / np.float16(np.sqrt(8)), draw.pruned(2 * s.n, s.k)

    def expected() -> dict[str, Array]:
        made = wide(x) @ wide(w).T
        return {"y": silu(made[:, : s.n]) * made[:, s.n :]}

    return Call(
        {"x": x, "w": w, "y": np.empty((s.m, s.n), np.float16), "stride_xm": s.k, "stride_wn": s.k},
        expected,
        operations=4.0 * s.m * s.n * s.k,
    )


@triton.jit
def gated_neighbours(
    x, w, bias, y, M, N, K, stride_xm, stride_wk, stride_wn, limit, alpha,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The gate of gpt-oss: gates and values in neighbouring rows of the weight; the tile is split behind the product."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x_at = x + m[:, None] * stride_xm + k[None, :]
        w_at = w + k[:, None] * stride_wk + n[None, :] * stride_wn
        one = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        two = tl.load(w_at, mask=(n[None, :] < 2 * N) & (k[:, None] < K), other=0.0)
        total = tl.dot(one, two, total)
    total += tl.load(bias + n, mask=n < 2 * N, other=0.0)[None, :]
    gate, value = tl.split(tl.reshape(total, (BM, BN // 2, 2)))
    gate = tl.minimum(gate, limit)
    value = tl.clamp(value, -limit, limit)
    gate = gate / (1 + tl.exp(-alpha * gate))
    column = tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2)
    inside = (m[:, None] < M) & (column[None, :] < N)
    result = tl.fma(gate, value, gate).to(y.dtype.element_ty)
    tl.store(y + m[:, None] * N + column[None, :], result, mask=inside)


def _neighbours(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k) * np.float16(0.25), draw.pruned(2 * s.n, s.k)
    bias = draw.dense(2 * s.n).astype(np.float32)
    limit, alpha = 7.0, 1.702

    def expected() -> dict[str, Array]:
        made = wide(x) @ wide(w).T + wide(bias)
        gate, value = np.minimum(made[:, ::2], limit), np.clip(made[:, 1::2], -limit, limit)
        return {"y": gate * sigmoid(alpha * gate) * (value + 1)}

    return Call(
        {
            "x": x, "w": w, "bias": bias, "y": np.empty((s.m, s.n), np.float16), "stride_xm": s.k, "stride_wk": 1,
            "stride_wn": s.k, "limit": limit, "alpha": alpha,
        },
        expected,
        grid=(s.grid[0], -(-2 * s.n // s.BN)),
        operations=4.0 * s.m * s.n * s.k,
    )  # fmt: skip


@triton.jit
def norm_before(x, gain, w, y, M, N, K, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Two loops over K: squares of the rows, then the product of the rows by their RMS norm."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    squares = tl.zeros((BM,), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        one = one.to(tl.float32)
        squares += tl.sum(one * one, axis=1)
    scale = tl.rsqrt(squares / K + eps)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        of_column = tl.load(gain + k, mask=k < K, other=0.0).to(tl.float32)
        normed = (one.to(tl.float32) * scale[:, None] * of_column[None, :]).to(w.dtype.element_ty)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(normed, two, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=inside)


def _normed(draw: Draw, s: Sizes) -> Call:
    x, w, gain = (make(*shape, element="bf16") for make, shape in (
        (draw.dense, (s.m, s.k)), (draw.pruned, (s.n, s.k)), (draw.dense, (s.k,))
    ))  # fmt: skip

    def expected() -> dict[str, Array]:
        rows = wide(x)
        return {"y": rows / np.sqrt((rows * rows).mean(1, keepdims=True) + 1e-6) * wide(gain) @ wide(w).T}

    return Call({"x": x, "gain": gain, "w": w, "y": np.empty((s.m, s.n), np.float16), "eps": 1e-6}, expected)


@triton.jit
def sums_of_groups(
    x, w, y, scales, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Nested loops: the sum of GROUP columns, then its scaled part of the whole."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for group in range(tl.cdiv(K, GROUP)):
        part = tl.zeros((BM, BN), tl.float32)
        for step in range(GROUP // BK):
            k = group * GROUP + step * BK + tl.arange(0, BK)
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
            part = tl.dot(one, two, part)
        total += part * tl.load(scales + group * M + m, mask=m < M, other=0.0)[:, None]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=inside)


def _groups(draw: Draw, s: Sizes, group: int = 128) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    scales = draw.rng.uniform(0.5, 2, (-(-s.k // group), s.m)).astype(np.float32)
    return Call(
        {"x": x, "w": w, "y": np.empty((s.m, s.n), np.float16), "scales": scales, "GROUP": group},
        lambda: {"y": wide(x) * scales.T.repeat(group, 1)[:, : s.k] @ wide(w).T},
    )


@triton.jit
def block_scales(
    x, w, y, x_scale, w_scale, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """DeepSeek's 8-bit product: pointers to scales of rows and of BK×BK blocks move with the steps; N and K are constants."""
    steps = tl.cdiv(K, BK)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    m = row % M
    n = column % N
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    xs_at = x_scale + m * steps
    ws_at = w_scale + (n // BK) * steps
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(steps):
        one = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        of_x = tl.load(xs_at)
        of_w = tl.load(ws_at)
        total += tl.dot(one, two) * of_x[:, None] * of_w[None, :]
        x_at += BK
        w_at += BK
        xs_at += 1
        ws_at += 1
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(y + row[:, None] * N + column[None, :], total.to(y.dtype.element_ty), mask=inside)


def _scaled(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k, element="e4m3"), draw.pruned(s.n, s.k, element="e4m3")
    along_k, along_n = -(-s.k // s.BK), -(-s.n // s.BK)
    of_x = draw.rng.uniform(0.05, 0.2, (s.m, along_k)).astype(np.float32)
    of_w = draw.rng.uniform(0.5, 2, (along_n, along_k)).astype(np.float32)

    def expected() -> dict[str, Array]:
        rows = wide(x) * of_x.repeat(s.BK, 1)[:, : s.k]
        return {"y": rows @ (wide(w) * of_w.repeat(s.BK, 0).repeat(s.BK, 1)[: s.n, : s.k]).T}

    y = np.empty((s.m, s.n), np.float16)
    return Call({"x": x, "w": w, "y": y, "x_scale": of_x, "w_scale": of_w}, expected)


@triton.jit
def capped_entropy(
    x, w, partial_sums, TOKENS, WORDS, K, cap, WHOLE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Cut cross-entropy: the logarithm of the sum of a tile's exponentials; logits are capped by tanh. WHOLE: no mask of K."""
    tiles_m = tl.cdiv(TOKENS, BM)
    tile_m = tl.program_id(0) % tiles_m
    tile_n = tl.program_id(0) // tiles_m
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    m = row % TOKENS
    n = column % WORDS
    k = tl.arange(0, BK)
    x_at = x + (m[:, None] * K + k[None, :])
    w_at = w + (n[None, :] * K + k[:, None])
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        if WHOLE:
            one = tl.load(x_at)
            two = tl.load(w_at)
        else:
            one = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
            two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(one, two, total, input_precision="tf32")
        x_at += BK
        w_at += BK
    total = cap * libdevice.tanh(total / cap)
    logits = tl.where((column < WORDS)[None, :], total, -float("inf"))
    most = tl.max(logits, axis=1)
    made = most + tl.log(tl.sum(tl.exp(logits - most[:, None]), axis=1))
    tl.store(partial_sums + tile_n * TOKENS + row, made, mask=row < TOKENS)


def _entropy(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k) * np.float16(0.3), draw.pruned(s.n, s.k)

    def expected() -> dict[str, Array]:
        logits = CAP * np.tanh(wide(x) @ wide(w).T / CAP)
        parts = [logits[:, first : first + s.BN] for first in range(0, s.n, s.BN)]
        return {"partial_sums": np.stack([np.log(np.exp(part).sum(1)) for part in parts])}

    return Call(
        {
            "x": x, "w": w, "partial_sums": np.empty((s.grid[1], s.m), np.float32), "TOKENS": s.m, "WORDS": s.n,
            "cap": CAP, "WHOLE": s.k % s.BK == 0,
        },
        expected,
        outputs=("partial_sums",),
        grid=(s.flat,),
    )  # fmt: skip


LARGE = (Sizes(2048, 4096, 4096, 128, 128, 64),)

FORMS = (
    Form(
        "gate in halves",
        gated_halves,
        _halves,
        Sizes(40, 64, 128, 32, 32, 64),
        (Sizes(2048, 4096, 4096, 128, 64, 64),),
        "other",
    ),
    Form("gate of neighbours", gated_neighbours, _neighbours, SMALL, LARGE, "other"),
    Form("norm before a product", norm_before, _normed, SMALL, LARGE, "other", tolerance=2.0**-5),
    Form("sums of groups", sums_of_groups, _groups, Sizes(40, 56, 256, 32, 32, 128), LARGE, "other"),
    Form(
        "8-bit product, block scales",
        block_scales,
        _scaled,
        Sizes(40, 256, 384, 32, 128, 128),
        (Sizes(2048, 4096, 4096, 64, 128, 128),),
        "block scales",
        tolerance=2.0**-5,
    ),
    Form(
        "capped cross-entropy",
        capped_entropy,
        _entropy,
        Sizes(40, 56, 128, 32, 32, 64),
        (Sizes(2048, 8192, 4096, 128, 128, 64),),
        "other",
    ),
)
