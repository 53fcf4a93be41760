"""Batches of several dimensions, whose strides are arguments: heads of a batch of sequences, taps of a convolution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide

HEADS = 3
TAPS = 3
SIDE = 6


@triton.jit
def each_head(
    y, x, w, M, N, K, HEADS, xb, xh, wb, wh, yb, yh, DESCRIBED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [B, H, M, N] = x [B, H, M, K] by w [B, H, N, K]. DESCRIBED: a descriptor begins at the matrix of w, else pointers move to it."""
    pair = tl.program_id(2)
    sample, head = pair // HEADS, pair % HEADS
    x += sample * xb + head * xh
    w += sample * wb + head * wh
    y += sample * yb + head * yh
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    first = tl.program_id(1) * BN
    n = first + tl.arange(0, BN)
    weights = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        if DESCRIBED:
            two = weights.load([first, start]).T
        else:
            two = tl.load(w + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def _heads(draw: Draw, s: Sizes, *, described: bool) -> Call:
    x, w = draw.dense(2, HEADS, s.m, s.k), draw.pruned(2, HEADS, s.n, s.k)
    sizes = {"x": s.m * s.k, "w": s.n * s.k, "y": s.m * s.n}
    strides = {name + axis: size * (HEADS if axis == "b" else 1) for name, size in sizes.items() for axis in "bh"}
    return Call(
        {"y": draw.dense(2, HEADS, s.m, s.n), "x": x, "w": w, "HEADS": HEADS, "DESCRIBED": described, **strides},
        lambda: {"y": wide(x) @ wide(w).swapaxes(-1, -2)},
        grid=(*s.grid, 2 * HEADS),
        operations=2.0 * 2 * HEADS * s.m * s.n * s.k,
    )


@triton.jit
def layer_of_experts(
    y, x, w, experts, layer, M, N, K, apart, each, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w [layers, experts, N, K]: an argument names the layer, a list the expert of each block of rows."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    expert = tl.load(experts + tl.program_id(0))
    w += layer * apart + expert * each
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def _layer(draw: Draw, s: Sizes, *, layer: int) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(3, HEADS, s.n, s.k)
    experts = draw.rng.integers(0, HEADS, s.grid[0]).astype(np.int32)
    rows = np.repeat(experts, s.BM)[: s.m]
    each = s.n * s.k
    return Call(
        {
            "y": draw.dense(s.m, s.n),
            "x": x,
            "w": w,
            "experts": experts,
            "layer": layer,
            "apart": HEADS * each,
            "each": each,
        },
        lambda: {"y": np.einsum("mk,mnk->mn", wide(x), wide(w[layer])[rows])},
    )


@triton.jit
def taps_of_a_convolution(
    y, x, w, side, M, N, C, w_down, w_across, TAPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [images, side, side, N] = x [images, side, side, C] by w [TAPS, TAPS, N, C], padded by zeros: one loop over taps and channels."""
    spot = tl.program_id(0) * BM + tl.arange(0, BM)
    across, down, image = spot % side, spot // side % side, spot // (side * side)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    steps = tl.cdiv(C, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(steps * TAPS * TAPS):
        tap, c = step // steps, step % steps * BK + tl.arange(0, BK)
        row, column = down + tap // TAPS - TAPS // 2, across + tap % TAPS - TAPS // 2
        inside = (spot < M) & (row >= 0) & (row < side) & (column >= 0) & (column < side)
        x_at = x + ((image * side + row) * side + column)[:, None] * C + c[None, :]
        w_at = w + tap // TAPS * w_down + tap % TAPS * w_across + n[None, :] * C + c[:, None]
        one = tl.load(x_at, mask=inside[:, None] & (c < C)[None, :], other=0.0)
        two = tl.load(w_at, mask=(n < N)[None, :] & (c < C)[:, None], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(y + spot[:, None] * N + n[None, :], total.to(tl.float16), mask=(spot < M)[:, None] & (n < N)[None, :])


def _taps(draw: Draw, s: Sizes) -> Call:
    """s.m: images times SIDE². s.k: channels."""
    images = s.m // SIDE**2
    x, w = draw.dense(images, SIDE, SIDE, s.k), draw.pruned(TAPS, TAPS, s.n, s.k)

    def expected() -> dict[str, Array]:
        rim = TAPS // 2
        padded: Any = np.pad(wide(x), ((0, 0), (rim, rim), (rim, rim), (0, 0)))
        parts = [padded[:, i : i + SIDE, j : j + SIDE] @ wide(w[i, j]).T for i in range(TAPS) for j in range(TAPS)]
        return {"y": sum(parts[1:], parts[0])}

    return Call(
        {
            "y": draw.dense(images, SIDE, SIDE, s.n), "x": x, "w": w, "side": SIDE, "C": s.k,
            "w_down": TAPS * s.n * s.k, "w_across": s.n * s.k, "TAPS": TAPS,
        },
        expected,
        operations=2.0 * TAPS**2 * s.m * s.n * s.k,
    )  # fmt: skip


SMALL = Sizes(72, 88, 136, 64, 32, 32)
LARGE = (Sizes(1024, 1024, 1024, 128, 128, 64),)

FORMS = (
    Form("heads of a batch", each_head, partial(_heads, described=False), SMALL, LARGE, "other"),
    Form("heads of a batch, described", each_head, partial(_heads, described=True), SMALL, LARGE, "other"),
    Form("experts of the first layer", layer_of_experts, partial(_layer, layer=0), SMALL, LARGE, "experts"),
    Form("experts of the second layer", layer_of_experts, partial(_layer, layer=1), SMALL, LARGE, "experts"),
    Form("experts of a layer", layer_of_experts, partial(_layer, layer=2), SMALL, LARGE, "experts"),
    Form(
        "taps of a convolution",
        taps_of_a_convolution,
        _taps,
        Sizes(72, 88, 40, 64, 32, 32),
        (Sizes(9216, 512, 512, 128, 128, 64),),
        "other",
    ),
)
