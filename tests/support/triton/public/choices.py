"""Kernels that choose: one of several weights by the program, an address inside of the tensor by a comparison."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, square, wide
from support.triton.public.common import SMALL, product


@triton.jit
def projections(
    x, w_q, w_k, w_v, q, k, v, M, N, N_KV, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Three projections in one launch: the last axis of the grid chooses weight, output and their size."""
    which = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if which == 0:
        weight = w_q
        out = q
        columns = N
    elif which == 1:
        weight = w_k
        out = k
        columns = N_KV
    else:
        weight = w_v
        out = v
        columns = N_KV
    if tl.program_id(1) * BN >= columns:
        return
    inside = tl.arange(0, BK)
    x_at = x + m[:, None] * K + inside[None, :]
    w_at = weight + n[:, None] * K + inside[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = inside[None, :] < K - step * BK
        one = tl.load(x_at, mask=(m < M)[:, None] & left, other=0.0)
        two = tl.load(w_at, mask=(n < columns)[:, None] & left, other=0.0)
        total = tl.dot(one, two.T, total)
        x_at += BK
        w_at += BK
    tl.store(out + m[:, None] * columns + n[None, :], total, mask=(m < M)[:, None] & (n < columns)[None, :])


def _projections(draw: Draw, s: Sizes) -> Call:
    x, few = draw.dense(s.m, s.k), s.n // 2
    weights = {"w_q": draw.pruned(s.n, s.k), "w_k": draw.pruned(few, s.k), "w_v": draw.pruned(few, s.k)}
    outs = {name: np.empty((s.m, n), np.float16) for name, n in (("q", s.n), ("k", few), ("v", few))}

    def expected() -> dict[str, Array]:
        made = zip(outs, weights.values(), strict=True)
        return {name: wide(x) @ wide(weight).T for name, weight in made}

    return Call(
        {"x": x, **weights, **outs, "N_KV": few},
        expected,
        outputs=tuple(outs),
        sparse=tuple(weights),
        grid=(*s.grid, 3),
        operations=4.0 * s.m * s.n * s.k,
    )


@triton.jit
def gate_in_turn(x, w1, w2, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A gated product whose outer loop takes the weight of the gate first, and then the other one."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    gated = tl.full((BM, BN), 1.0, dtype=tl.float32)
    for turn in range(2):
        weight = tl.where(turn == 0, w1, w2)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            two = tl.load(weight + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
            total = tl.dot(one, two.T, total)
        gated *= tl.where(turn == 0, total * tl.sigmoid(total), total)
    tl.store(y + m[:, None] * N + n[None, :], gated, mask=(m < M)[:, None] & (n < N)[None, :])


def _in_turn(draw: Draw, s: Sizes) -> Call:
    x, w1, w2 = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.pruned(s.n, s.k)

    def expected() -> dict[str, Array]:
        gate = wide(x) @ wide(w1).T
        return {"y": gate / (1 + np.exp(-gate)) * (wide(x) @ wide(w2).T)}

    return Call(
        {"x": x, "w1": w1, "w2": w2, "y": np.empty((s.m, s.n), np.float32)},
        expected,
        sparse=("w1", "w2"),
        operations=4.0 * s.m * s.n * s.k,
    )


@triton.jit
def inside_addresses(
    x, w, y, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """A weight without a mask: addresses outside of it become its first one. The other operand is masked along K."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        at = n[None, :] * K + k[:, None]
        if HOW == "offsets":
            two = tl.load(w + tl.where((n < N)[None, :] & (k < K)[:, None], at, 0))
        elif HOW == "outside":
            two = tl.load(w + tl.where((n >= N)[None, :] | (k >= K)[:, None], 0, at))
        elif HOW == "pointers":
            two = tl.load(tl.where((n < N)[None, :] & (k < K)[:, None], w + at, w))
        else:
            read = tl.load(w + tl.where((n < N)[None, :] & (k < K)[:, None], at, 0))
            two = tl.where((n >= N)[None, :], 0.0, read)
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


MODEL = square(4096, (128, 128, 64))

FORMS = (
    Form("projections by the program", projections, _projections, SMALL, MODEL, "other"),
    Form("gate and up in turn", gate_in_turn, _in_turn, SMALL, MODEL, "other"),
    *(
        Form(
            f"addresses inside by {how}",
            inside_addresses,
            lambda draw, s: product(draw, s, strides=()),
            SMALL,
            MODEL,
            constants={"HOW": how},
        )
        for how in ("offsets", "outside", "pointers", "values")
    ),
)
