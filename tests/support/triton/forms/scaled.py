"""Products in 8 bits and with scales: promoted sums, block scales on either side, operands that are computed in the loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide

GROUP = 128
"""Columns of K, and rows of a weight, that share a scale."""


@triton.jit
def fp8_rows(y, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TERMS: tl.constexpr):
    """y [M, N] = x [M, K] times w [N, K] transposed, at most TERMS columns of K in one sum of the tensor cores, and each row's largest y."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        a = tl.load(x + rows[:, None] * K + start + k[None, :], mask=(rows[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(
            w + columns[None, :] * K + start + k[:, None], mask=inside[:, None] & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(a, b, total, max_num_imprecise_acc=TERMS)
    largest = tl.maximum(tl.max(tl.abs(total), axis=1), 1e-6)
    within = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y + rows[:, None] * N + columns[None, :], total / largest[:, None], mask=within)


@triton.jit
def fp8_columns(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [K, N], whose neighbours are along N, and each column's share of its largest."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        left = tl.load(w + m[:, None] * K + (k0 + k)[None, :], mask=(m[:, None] < M) & (k0 + k < K)[None, :], other=0.0)
        right = tl.load(
            x + (k0 + k)[:, None] * N + n[None, :], mask=(k0 + k < K)[:, None] & (n[None, :] < N), other=0.0
        )
        sums += tl.dot(left, right)
    most = tl.maximum(tl.max(tl.abs(sums), axis=0), 1e-6)
    tl.store(y + m[:, None] * N + n[None, :], sums / most[None, :], mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def block_scaled_rows(
    out, x, xs, w, ws, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """out [M, N] = x [M, K] times w [N, K] transposed: a scale for a row's 128 columns of x, and for 128 by 128 elements of w."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    blocks = tl.cdiv(K, GROUP)
    x_at = x + rows[:, None] * K + k[None, :]
    w_at = w + columns[None, :] * K + k[:, None]
    xs_at = xs + rows * blocks
    ws_at = ws + (columns // GROUP) * blocks
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(x_at, mask=(rows[:, None] < M) & (k[None, :] < left), other=0.0)
        b = tl.load(w_at, mask=(k[:, None] < left) & (columns[None, :] < N), other=0.0)
        block = step * BK // GROUP
        a_scale = tl.load(xs_at + block, mask=rows < M, other=0.0)
        b_scale = tl.load(ws_at + block, mask=columns < N, other=0.0)
        total += tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]
        x_at += BK
        w_at += BK
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16), mask=inside)


@triton.jit
def block_scaled_left(
    out, w, w_scales, x, x_scales, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """out [M, N] = w [M, K] times x [N, K] transposed, block scales of both; one of w's for each tile."""
    row, column = tl.program_id(0), tl.program_id(1)
    m = row * BM + tl.arange(0, BM)
    n = column * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    groups = tl.cdiv(K, GROUP)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        at = i * BK + depth
        w_tile = tl.load(w + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        x_tile = tl.load(x + n[None, :] * K + at[:, None], mask=(n[None, :] < N) & (at[:, None] < K), other=0.0)
        one = tl.load(w_scales + (row * BM // GROUP) * groups + i)
        many = tl.load(x_scales + n * groups + i, mask=n < N, other=0.0)
        acc += tl.dot(w_tile, x_tile) * (one * many)[None, :]
    tl.store(out + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def int8_activations(y, q, scale, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = (q [M, K] in 8 bits times a scale of its row) times w [N, K] transposed."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    s = tl.load(scale + m, mask=m < M, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        codes = tl.load(q + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        weight = tl.load(w + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        x = codes.to(tl.float16) * s[:, None]
        total = tl.dot(x, weight.T, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def activated_operand(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times the positive part of x [K, N], halved."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - first), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - first) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, (tl.maximum(right, 0.0) * 0.5).to(tl.float16), total)
        w_at += BK
        x_at += BK * N
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def half_sums(y, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [N, K] transposed, summed in f16; the smallest of each row is taken away."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float16)
    for first in range(0, K, BK):
        a = tl.load(
            x + m[:, None] * K + first + k[None, :], mask=(m[:, None] < M) & (first + k < K)[None, :], other=0.0
        )
        b = tl.load(
            w + n[:, None] * K + first + k[None, :], mask=(n[:, None] < N) & (first + k < K)[None, :], other=0.0
        )
        total = tl.dot(a, b.T, total, out_dtype=tl.float16)
    least = tl.min(total.to(tl.float32), axis=1)
    y_at = y + m[:, None] * N + n[None, :]
    tl.store(y_at, total - least[:, None].to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def microscaled(y, x, xs, w, ws, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] of e5m2 times w [N, K] of e4m3 transposed: a power of two for 32 columns of each row of both."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    block = tl.arange(0, BK // 32)
    blocks = tl.cdiv(K, 32)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[:, None] * K + k[None, :]
    xs_at = xs + m[:, None] * blocks + block[None, :]
    ws_at = ws + n[:, None] * blocks + block[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside = (k < K - step * BK)[None, :]
        known = (block < blocks - step * (BK // 32))[None, :]
        a = tl.load(x_at, mask=(m < M)[:, None] & inside, other=0.0)
        b = tl.load(w_at, mask=(n < N)[:, None] & inside, other=0.0)
        of_a = tl.load(xs_at, mask=(m < M)[:, None] & known, other=127)
        of_b = tl.load(ws_at, mask=(n < N)[:, None] & known, other=127)
        total = tl.dot_scaled(a, of_a, "e5m2", b.T, of_b, "e4m3", total)
        x_at += BK
        w_at += BK
        xs_at += BK // 32
        ws_at += BK // 32
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


def _share(product: Array, axis: int) -> Array:
    return product / np.abs(product).max(axis=axis, keepdims=True)


def _of_tiles(product: Array, tile: int, axis: int) -> Array:
    """Each tile along the other axis as a share of its own largest."""
    parts = np.split(product, range(tile, product.shape[axis], tile), axis=axis)
    return np.concatenate([_share(part, axis) for part in parts], axis=axis)


def _rows(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k, element="e4m3"), draw.pruned(s.n, s.k, element="e4m3")
    return Call(
        {"y": np.empty((s.m, s.n), np.float32), "x": x, "w": w},
        lambda: {"y": _of_tiles(wide(x) @ wide(w).T, s.BN, 1)},
    )


def _columns(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k, element="e4m3"), draw.dense(s.k, s.n, element="e4m3")
    return Call(
        {"y": np.empty((s.m, s.n), np.float32), "w": w, "x": x}, lambda: {"y": _of_tiles(wide(w) @ wide(x), s.BM, 0)}
    )


def _scales(draw: Draw, *shape: int) -> Array:
    """Scales of 1, 1e-3 and 1e3."""
    return draw.rng.choice(np.array([1.0, 1e-3, 1e3], np.float32), shape)


def _over_columns(scales: Array, k: int) -> Array:
    return np.repeat(wide(scales), GROUP, axis=1)[:, :k]


def _block_scaled(sparse_left: bool) -> Callable[[Draw, Sizes], Call]:
    def build(draw: Draw, s: Sizes) -> Call:
        tokens, weights = (s.n, s.m) if sparse_left else (s.m, s.n)
        groups = -(-s.k // GROUP)
        x, w = draw.dense(tokens, s.k, element="e4m3"), draw.pruned(weights, s.k, element="e4m3")
        xs, ws = _scales(draw, tokens, groups), _scales(draw, -(-weights // GROUP), groups)
        x_wide = wide(x) * _over_columns(xs, s.k)
        w_wide = wide(w) * _over_columns(np.repeat(ws, GROUP, axis=0)[:weights], s.k)
        names = ("x", "x_scales", "w", "w_scales") if sparse_left else ("x", "xs", "w", "ws")
        arrays = dict(zip(names, (x, xs, w, ws), strict=True))
        return Call(
            {"out": np.empty((s.m, s.n), draw.dense(1, element="bf16").dtype), **arrays, "GROUP": GROUP},
            lambda: {"out": w_wide @ x_wide.T if sparse_left else x_wide @ w_wide.T},
            outputs=("out",),
        )

    return build


def _int8_activations(draw: Draw, s: Sizes) -> Call:
    q, w = draw.dense(s.m, s.k, element="s8"), draw.pruned(s.n, s.k)
    scale = (draw.rng.random(s.m) + 0.5).astype(np.float16)
    x = q.astype(np.float16) * scale[:, None]
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "q": q, "scale": scale, "w": w},
        lambda: {"y": wide(x) @ wide(w).T},
    )


def _activated(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "w": w, "x": x}, lambda: {"y": wide(w) @ np.maximum(wide(x) * 0.5, 0)}
    )


def _half_sums(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w},
        lambda: {"y": _above_least(wide(x) @ wide(w).T, s.BN)},
    )


def _above_least(product: Array, tile: int) -> Array:
    """Each row of a tile without its least, which is 0 at most in a tile beyond the edge."""
    beyond = -product.shape[1] % tile
    whole = np.pad(product, ((0, 0), (0, beyond))).reshape(len(product), -1, tile)
    return (whole - whole.min(axis=2, keepdims=True)).reshape(len(product), -1)[:, : product.shape[1]]


def _microscaled(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k, element="e5m2"), draw.pruned(s.n, s.k, element="e4m3")
    xs, ws = (draw.rng.integers(120, 134, (rows, -(-s.k // 32)), np.uint8) for rows in (s.m, s.n))

    def scaled(numbers: Array, scales: Array) -> Array:
        return wide(numbers) * np.repeat(2.0 ** (wide(scales) - 127), 32, axis=1)[:, : s.k]

    y = np.empty((s.m, s.n), draw.dense(1, element="bf16").dtype)
    return Call({"y": y, "x": x, "xs": xs, "w": w, "ws": ws}, lambda: {"y": scaled(x, xs) @ scaled(w, ws).T})


def _large(*tiles: tuple[int, int, int]) -> tuple[Sizes, ...]:
    return tuple(Sizes(4096, 4096, 4096, *tile) for tile in tiles)


_BYTES = _large((128, 128, 128), (64, 64, 128))

FORMS = (
    Form("fp8 rows", fp8_rows, _rows, Sizes(72, 136, 336, 64, 64, 128), _BYTES, "8-bit floats", {"TERMS": 0}),
    Form("fp8 promoted", fp8_rows, _rows, Sizes(72, 136, 336, 64, 64, 128), _BYTES, "8-bit floats", {"TERMS": 128}),
    Form("fp8 columns", fp8_columns, _columns, Sizes(144, 80, 336, 64, 64, 128), _BYTES, "8-bit floats"),
    Form(
        "block scales on rows",
        block_scaled_rows,
        _block_scaled(False),
        Sizes(72, 136, 336, 64, 64, 128),
        _BYTES,
        "block scales",
    ),
    Form(
        "block scales, sparse left",
        block_scaled_left,
        _block_scaled(True),
        Sizes(144, 80, 336, 128, 64, 128),
        _BYTES,
        "block scales",
    ),
    Form(
        "int8 activations",
        int8_activations,
        _int8_activations,
        Sizes(72, 136, 208, 64, 64, 64),
        _large((128, 256, 64), (128, 128, 64), (64, 64, 64)),
    ),
    Form(
        "activated operand",
        activated_operand,
        _activated,
        Sizes(144, 72, 208, 64, 64, 64),
        _large((128, 128, 64), (64, 64, 64)),
    ),
    Form(
        "microscaled",
        microscaled,
        _microscaled,
        Sizes(72, 136, 336, 64, 64, 128),
        _BYTES,
        "block scales",
    ),
    Form("f16 sums", half_sums, _half_sums, Sizes(72, 136, 72, 64, 64, 32), _large((128, 256, 64), (128, 128, 64))),
)
