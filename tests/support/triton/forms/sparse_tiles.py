"""The uses of a sparse tile: cast, scaled, masked, summed, stored, and in several dots."""

from __future__ import annotations

from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide


@triton.jit
def changed_tile(
    y, w, x, factors, sums, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = what `HOW` makes of w [M, K], times x [K, N]; sums: of w's rows."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    beside = tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tile = tl.load(w + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(x + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if HOW == "cast":
            tile = tile.to(right.dtype)
        elif HOW == "scaled":
            tile = (tile.to(tl.float32) * 0.5).to(right.dtype)
        elif HOW == "rows":
            tile = tile.to(right.dtype) * tl.load(factors + m, mask=m < M, other=0.0)[:, None]
        elif HOW == "columns":
            tile = tile.to(right.dtype) * tl.load(factors + k, mask=k < K, other=0.0)[None, :]
        elif HOW == "decaying":
            by = tl.exp(tl.load(factors + k, mask=k < K, other=0.0).to(tl.float32))
            tile = (tile.to(tl.float32) * by[None, :]).to(right.dtype)
        elif HOW == "masked":
            tile = tl.where((m % 2 == 0)[:, None], tile, 0.0)
        elif HOW == "masked along K":
            tile = tl.where((k % 3 == 0)[None, :], tile, 0.0)
        elif HOW == "leaky":
            tile = tl.where(tile >= 0, tile, tile * 0.25)
        elif HOW == "exponential":
            tile = tl.exp(tile.to(tl.float32)).to(right.dtype)
        elif HOW == "added":
            tile = tile + 1.0
        elif HOW == "negated":
            tile = -tile
        elif HOW == "summed":
            beside += tl.sum(tile.to(tl.float32), 1)
        total = tl.dot(tile.to(right.dtype), right, total)
    if HOW == "summed":
        tl.store(sums + m, beside, mask=(m < M) & (tl.program_id(1) == 0))
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def _changes(w: Array, f: Array, how: str) -> Array:
    w = w.astype(np.float64)
    columns, rows = np.arange(w.shape[1]), np.arange(w.shape[0])[:, None]
    return {
        "cast": w,
        "scaled": w / 2,
        "rows": w * f[: len(w), None],
        "columns": w * f[: w.shape[1]],
        "decaying": w * np.exp(f[: w.shape[1]]),
        "masked": np.where(rows % 2 == 0, w, 0.0),
        "masked along K": np.where(columns % 3 == 0, w, 0.0),
        "leaky": np.where(w >= 0, w, w / 4),
        "exponential": np.exp(w),
        "added": w + 1,
        "negated": -w,
        "summed": w,
    }[how]


def _changed(how: str, element: str = "f16", to: str = "f16") -> Any:
    def build(draw: Draw, s: Sizes) -> Call:
        w, x = draw.pruned(s.m, s.k, element=element), draw.dense(s.k, s.n, element=to)
        factors = draw.dense(max(s.m, s.k), element=to)
        arguments: dict[str, Any] = {
            "y": np.empty((s.m, s.n), np.float32), "w": w, "x": x, "factors": factors, "sums": np.empty(s.m, np.float32),
            "HOW": how,
        }  # fmt: skip

        def expected() -> dict[str, Array]:
            made = {"y": _changes(w, factors.astype(np.float64), how) @ x.astype(np.float64)}
            return made | ({"sums": w.astype(np.float64).sum(1)} if how == "summed" else {})

        outputs = ("y", "sums") if how == "summed" else ("y",)
        return Call(arguments, expected, outputs=outputs)

    return build


SMALL = Sizes(72, 40, 200, 64, 32, 64)
LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64),)

_CHANGES = [
    *((f"sparse tile {how}", how, "f16", "f16") for how in (
        "scaled", "rows", "columns", "masked", "masked along K", "leaky", "exponential", "added", "negated", "summed")),
    ("sparse s8 cast to f16", "cast", "s8", "f16"),
    ("sparse e4m3 cast to f16", "cast", "e4m3", "f16"),
    ("sparse f16 cast to bf16", "cast", "f16", "bf16"),
    ("sparse f16 cast to f32", "cast", "f16", "f32"),
    ("sparse s8 scaled by rows", "rows", "s8", "bf16"),
    ("sparse tile decaying", "decaying", "f16", "f16"),
    ("sparse s8 by columns", "columns", "s8", "f16"),
    ("sparse s8 added", "added", "s8", "f16"),
    ("sparse f32 by columns", "columns", "f32", "f32"),
    ("sparse f32 masked along K", "masked along K", "f32", "f32"),
]  # fmt: skip

FORMS = tuple(
    Form(name, changed_tile, _changed(how, element, to), SMALL, LARGE if element == "f16" else (), kind="other")
    for name, how, element, to in _CHANGES
)


@triton.jit
def linear(
    y, x, w, M, N, K, stride_wk, stride_wn, MASK_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = x [M, K] times w, whatever its strides."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + k[:, None] * stride_wk + n[None, :] * stride_wn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        if MASK_K:
            here = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
            there = tl.load(w_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        else:
            here = tl.load(x_at, mask=m[:, None] < M, other=0.0)
            there = tl.load(w_at, mask=n[None, :] < N, other=0.0)
        total = tl.dot(here, there, total)
        x_at += BK
        w_at += BK * stride_wk
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def linear_descriptors(y, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [K, N]."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    xs = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    ws = tl.make_tensor_descriptor(w, [K, N], [N, 1], [BK, BN])
    ys = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(xs.load([m, k]), ws.load([k, n]), total)
    ys.store([m, n], total.to(tl.float16))


@triton.jit
def batched_linear(y, x, w, E, M, N, K, stride_e, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [E, M, N] = x [E, M, K] times w [E, K, N]."""
    e = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        here = tl.load(x + e * M * K + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        there = tl.load(
            w + e * stride_e + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0
        )
        total = tl.dot(here, there, total)
    at = y + e * M * N + m[:, None] * N + n[None, :]
    tl.store(at, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def backward(dx, dy, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """dx [M, K] = dy [M, N] times w [N, K], sparse along K: the dot sums along the other axis."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    total = tl.zeros((BM, BK), dtype=tl.float32)
    for first in range(0, N, BN):
        n = first + tl.arange(0, BN)
        here = tl.load(dy + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
        there = tl.load(w + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        total = tl.dot(here, there, total)
    tl.store(dx + m[:, None] * K + k[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (k[None, :] < K))


def _across(draw: Draw, *shape: int) -> Array:
    """Pruned along the last axis but one."""
    *batch, k, n = shape
    return np.ascontiguousarray(draw.pruned(*batch, n, k).swapaxes(-1, -2))


def _linear(draw: Draw, s: Sizes, **more: Any) -> Call:
    x, w = draw.dense(s.m, s.k), _across(draw, s.k, s.n)
    arguments: dict[str, Any] = {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, **more}
    return Call(arguments, lambda: {"y": wide(x) @ wide(w)}, axes={"w": 0})


def _strided(draw: Draw, s: Sizes) -> Call:
    return _linear(draw, s, stride_wk=s.n, stride_wn=1)


def _batched(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(3, s.m, s.k), _across(draw, 3, s.k, s.n)
    return Call(
        {"y": np.empty((3, s.m, s.n), np.float16), "x": x, "w": w, "E": 3, "stride_e": s.k * s.n},
        lambda: {"y": wide(x) @ wide(w)},
        grid=(*s.grid, 3),
        operations=6.0 * s.m * s.n * s.k,
        axes={"w": 1},
    )


def _backward(draw: Draw, s: Sizes) -> Call:
    dy, w = draw.dense(s.m, s.n), draw.pruned(s.n, s.k)
    return Call(
        {"dx": np.empty((s.m, s.k), np.float16), "dy": dy, "w": w},
        lambda: {"dx": wide(dy) @ wide(w)},
        outputs=("dx",),
        grid=(-(-s.m // s.BM), -(-s.k // s.BK)),
    )


WEIGHTS = Sizes(50, 72, 200, 32, 64, 64)
WHOLE = Sizes(50, 72, 192, 32, 64, 64)

FORMS += (
    Form("weight K by N", linear, _strided, WEIGHTS, LARGE, constants={"MASK_K": True}),
    Form("weight K by N without a mask along K", linear, _strided, WHOLE, (), constants={"MASK_K": False}),
    Form("weight K by N by descriptors", linear_descriptors, _linear, WEIGHTS, LARGE),
    Form("weights K by N of a batch", batched_linear, _batched, WEIGHTS, ()),
    Form(
        "sum along the axis that is not sparse",
        backward,
        _backward,
        Sizes(50, 72, 200, 32, 32, 64),
        LARGE,
        kind="other",
    ),
)
