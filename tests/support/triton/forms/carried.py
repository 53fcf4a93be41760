"""Places that loops carry and branches choose, batches along a sparse axis that is not the last one, and names of a product's parameters."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Call, Draw, Form, Sizes, square, wide


@triton.jit
def tiles_in_one_loop(
    y, x, w, M, N, K, x_row, w_k, w_n, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w: one loop over tiles and steps of K, which counts steps and keeps the tile's rows and columns."""
    tiles_n, steps = tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles = tl.cdiv(M, BM) * tiles_n
    mine = tiles // PROGRAMS + (tl.program_id(0) < tiles % PROGRAMS).to(tl.int32)
    tile, step = tl.program_id(0) - PROGRAMS, -1
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    pid_m, pid_n = 0, 0
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(steps * mine):
        step = tl.where(step == steps - 1, 0, step + 1)
        if step == 0:
            tile += PROGRAMS
            pid_m, pid_n = tile // tiles_n, tile % tiles_n
            m, n = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
            m, n = tl.where(m < M, m, 0), tl.where(n < N, n, 0)
        at = step * BK + k
        one = tl.load(x + m[:, None] * x_row + at[None, :], mask=at[None, :] < K, other=0.0)
        two = tl.load(w + at[:, None] * w_k + n[None, :] * w_n, mask=at[:, None] < K, other=0.0)
        total = tl.dot(one, two, total)
        if step == steps - 1:
            rows, columns = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
            inside = (rows < M)[:, None] & (columns < N)[None, :]
            tl.store(y + rows[:, None] * N + columns[None, :], total.to(tl.float16), mask=inside)
            total = tl.zeros((BM, BN), dtype=tl.float32)


def _across_or_along(draw: Draw, s: Sizes, *, across: bool) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    w = np.ascontiguousarray(w.T) if across else w
    w_k, w_n = (s.n, 1) if across else (1, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "x_row": s.k, "w_k": w_k, "w_n": w_n},
        lambda: {"y": wide(x) @ (wide(w) if across else wide(w).T)},
        axes={"w": -2} if across else {},
    )


def _in_one_loop(draw: Draw, s: Sizes, *, across: bool) -> Call:
    call = _across_or_along(draw, s, across=across)
    return replace(call, arguments={**call.arguments, "PROGRAMS": 3}, grid=(3,))


@triton.jit
def tiles_of_branches(
    y, x, w, M, N, K, x_row, w_k, w_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w: a branch of each step loads the tiles, whole ones or those of the last step with a mask."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    ones = x + tl.minimum(m, M - 1)[:, None] * x_row + k[None, :]
    twos = w + k[:, None] * w_k + tl.minimum(n, N - 1)[None, :] * w_n
    total, steps = tl.zeros((BM, BN), dtype=tl.float32), tl.cdiv(K, BK)
    for step in range(steps):
        if step < steps - 1:
            one, two = tl.load(ones), tl.load(twos)
        else:
            left = K - step * BK
            one = tl.load(ones, mask=k[None, :] < left, other=0.0)
            two = tl.load(twos, mask=k[:, None] < left, other=0.0)
        total = tl.dot(one, two, total)
        ones += BK
        twos += BK * w_k
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def rotated_heads(
    query, key, x, w, cosine, sine, M, K, QUERIES, KEYS, HALF: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Heads of x [M, K] by w [(QUERIES + KEYS) · 2 · HALF, K]ᵀ, each rotated: branches choose the array that is stored to."""
    m, head = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1)
    d, k = tl.arange(0, HALF), tl.arange(0, BK)
    first, second = tl.zeros((BM, HALF), tl.float32), tl.zeros((BM, HALF), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        one = tl.load(x + m[:, None] * K + start + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        at = w + (head * 2 * HALF + d)[None, :] * K + start + k[:, None]
        first = tl.dot(one, tl.load(at, mask=inside[:, None], other=0.0), first)
        second = tl.dot(one, tl.load(at + HALF * K, mask=inside[:, None], other=0.0), second)
    place = m[:, None] * HALF + d[None, :]
    c, s = tl.load(cosine + place, mask=(m < M)[:, None]), tl.load(sine + place, mask=(m < M)[:, None])
    if head < QUERIES:
        out = query + m[:, None] * (QUERIES * 2 * HALF) + head * 2 * HALF + d[None, :]
    else:
        out = key + m[:, None] * (KEYS * 2 * HALF) + (head - QUERIES) * 2 * HALF + d[None, :]
    tl.store(out, (first * c - second * s).to(tl.float16), mask=(m < M)[:, None])
    tl.store(out + HALF, (second * c + first * s).to(tl.float16), mask=(m < M)[:, None])


def _rotated(draw: Draw, s: Sizes) -> Call:
    """s.n: all heads' elements, of which a third are keys'. s.BN: elements of a head."""
    heads, half = s.n // s.BN, s.BN // 2
    keys = heads // 3
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    angle = draw.rng.uniform(0, 6, (s.m, half))
    cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)

    def expected() -> dict[str, Any]:
        pairs = (wide(x) @ wide(w).T).reshape(s.m, heads, 2, half)
        one, two, c, by = pairs[:, :, 0], pairs[:, :, 1], wide(cosine)[:, None], wide(sine)[:, None]
        turned = np.concatenate([one * c - two * by, two * c + one * by], 2)
        return {
            "query": turned[:, : heads - keys].reshape(s.m, -1),
            "key": turned[:, heads - keys :].reshape(s.m, -1),
        }

    return Call(
        {
            "query": np.empty((s.m, (heads - keys) * s.BN), np.float16), "key": np.empty((s.m, keys * s.BN), np.float16),
            "x": x, "w": w, "cosine": cosine, "sine": sine, "QUERIES": heads - keys, "KEYS": keys, "HALF": half,
        },
        expected,
        outputs=("query", "key"),
        grid=(s.grid[0], heads),
    )  # fmt: skip


@triton.jit
def matrices(
    y, x, w, M, N, K, MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [E, M, N] = x [E, M, K] by w [E, K, N], sparse along K. MASKED: M, N and K need not be whole tiles."""
    entry = tl.program_id(2)
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + entry * M * K + m[:, None] * K + k[None, :]
    w_at = w + entry * K * N + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        if MASKED:
            one = tl.load(x_at, (m < M)[:, None] & (k < K)[None, :], other=0.0)
            two = tl.load(w_at, (k < K)[:, None] & (n < N)[None, :], other=0.0)
        else:
            one, two = tl.load(x_at), tl.load(w_at)
        k += BK
        x_at += BK
        w_at += BK * N
        total = tl.dot(one, two, total)
    out = y + entry * M * N + m[:, None] * N + n[None, :]
    if MASKED:
        tl.store(out, total.to(tl.float16), (m < M)[:, None] & (n < N)[None, :])
    else:
        tl.store(out, total.to(tl.float16))


def _matrices(draw: Draw, s: Sizes, *, masked: bool) -> Call:
    x, w = draw.dense(3, s.m, s.k), np.ascontiguousarray(draw.pruned(3, s.n, s.k).transpose(0, 2, 1))
    return Call(
        {"y": np.empty((3, s.m, s.n), np.float16), "x": x, "w": w, "MASKED": masked},
        lambda: {"y": wide(x) @ wide(w)},
        grid=(*s.grid, 3),
        operations=6.0 * s.m * s.n * s.k,
        axes={"w": -2},
    )


@triton.jit
def named_as_parameters(
    y, x, w, a, b, d, sms, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = (x [M, K] by w [N, K]ᵀ + b [N]) · a [N] + sms · d [M, N]: a product's own matrices are named a, b and d."""
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        one = tl.load(x + m[:, None] * K + start + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        two = tl.load(w + n[None, :] * K + start + k[:, None], mask=inside[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(one, two, total)
    inside = (m < M)[:, None] & (n < N)[None, :]
    place = m[:, None] * N + n[None, :]
    total = (total + tl.load(b + n, mask=n < N)[None, :]) * tl.load(a + n, mask=n < N)[None, :]
    total += sms * tl.load(d + place, mask=inside)
    tl.store(y + place, total.to(tl.float16), mask=inside)


def _named(draw: Draw, s: Sizes) -> Call:
    x, w, a, b, d = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n), draw.dense(s.n), draw.dense(s.m, s.n)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "a": a, "b": b, "d": d, "sms": 8.0},
        lambda: {"y": (wide(x) @ wide(w).T + wide(b)) * wide(a) + 8 * wide(d)},
    )


SMALL = Sizes(40, 56, 144, 32, 32, 64)


def _form(name: str, kernel: Any, build: Any, small: Sizes = SMALL, large: Sizes | None = None) -> Form:
    return Form(name, kernel, build, small, square(2048, (128, 128, 64)) if large is None else (large,))


FORMS: tuple[Form, ...] = (
    _form("tiles in one loop", tiles_in_one_loop, partial(_in_one_loop, across=False)),
    _form("tiles in one loop, along N", tiles_in_one_loop, partial(_in_one_loop, across=True)),
    _form("tiles of branches", tiles_of_branches, partial(_across_or_along, across=False)),
    _form("tiles of branches, along N", tiles_of_branches, partial(_across_or_along, across=True)),
    _form(
        "rotated heads", rotated_heads, _rotated, Sizes(40, 96, 144, 32, 32, 64), Sizes(2048, 3072, 2048, 128, 128, 64)
    ),
    _form("matrices, narrow steps", matrices, partial(_matrices, masked=True), Sizes(40, 56, 144, 32, 32, 16)),
    _form("matrices without masks", matrices, partial(_matrices, masked=False), Sizes(64, 64, 128, 32, 32, 64)),
    _form("named as parameters", named_as_parameters, _named),
)
