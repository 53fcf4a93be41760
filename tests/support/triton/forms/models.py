"""Kernels of model libraries: losses and reductions beside a dot, adapters, chunks of states, flat indices, changed sparse tiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes


def _wide(*arrays: Array) -> tuple[Array, ...]:
    return tuple(each.astype(np.float64) for each in arrays)


def _call(
    s: Sizes, grid: tuple[int, ...], outputs: dict[str, Array], expected: Callable[[], Any], sparse: str = "w", times: float = 1.0,
    **arguments: object,
) -> Call:  # fmt: skip
    """A call whose sparse argument is one, and whose sizes are M, N and K. times: so many times the operations of one product."""
    return Call(
        {**outputs, **arguments},
        lambda: dict(zip(outputs, made if isinstance(made := expected(), tuple) else (made,), strict=True)),
        outputs=tuple(outputs),
        sparse=(sparse,),
        grid=grid,
        operations=2.0 * s.m * s.n * s.k * times,
    )


@triton.jit
def projected_loss(peak, spread, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Of x [M, K] by w [N, K], for each row and tile of columns: its largest logit, and its sum of exponentials."""
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    logits = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        one = tl.load(
            x + m[:, None] * K + first + k[None, :], mask=(m < M)[:, None] & (k + first < K)[None, :], other=0.0
        )
        two = tl.load(
            w + n[:, None] * K + first + k[None, :], mask=(n < N)[:, None] & (k + first < K)[None, :], other=0.0
        )
        logits = tl.dot(one, two.T, logits)
    logits = tl.where((n < N)[None, :], logits, -float("inf"))
    most = tl.max(logits, axis=1)
    sums = tl.sum(tl.exp(logits - most[:, None]), axis=1)
    at = m * tl.num_programs(1) + tile_n
    tl.store(peak + at, most, mask=m < M)
    tl.store(spread + at, sums, mask=m < M)


def _loss(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k) / np.float16(8), draw.pruned(s.n, s.k) / np.float16(8)
    tiles = s.grid[1]

    def expected() -> tuple[Array, Array]:
        a, b = _wide(x, w)
        logits = np.full((s.m, tiles * s.BN), -np.inf)
        logits[:, : s.n] = a @ b.T
        parts = logits.reshape(s.m, tiles, s.BN)
        return parts.max(2), np.exp(parts - parts.max(2, keepdims=True)).sum(2)

    outputs = {name: np.empty((s.m, tiles), np.float32) for name in ("peak", "spread")}
    return _call(s, s.grid, outputs, expected, x=x, w=w)


@triton.jit
def normed_product(y, x, w, gain, eps, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = rms_norm(x) by w [N, K]: the sum of squares is taken of the same tiles as the dot."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total, squares = tl.zeros((BM, BN), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        two = tl.load(w + k[:, None] + n[None, :] * K, mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        wide = one.to(tl.float32)
        squares += tl.sum(wide * wide, axis=1)
        total = tl.dot(one, two, total)
    total = total * tl.rsqrt(squares / K + eps)[:, None] * tl.load(gain + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def _normed(draw: Draw, s: Sizes) -> Call:
    x, w, gain = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n)

    def expected() -> Array:
        a, b, of = _wide(x, w, gain)
        return a @ b.T / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * of

    return _call(s, s.grid, {"y": np.empty((s.m, s.n), np.float16)}, expected, x=x, w=w, gain=gain, eps=1e-5)


@triton.jit
def adapted_product(
    y, x, w, down, up, scale, M, N, K, RANK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = x · wᵀ + scale · (x · down) · up, with x [M, K], w [N, K], down [K, RANK], up [RANK, N]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k, r = tl.arange(0, BK), tl.arange(0, RANK)
    total, low = tl.zeros((BM, BN), dtype=tl.float32), tl.zeros((BM, RANK), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K
        one = tl.load(x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        two = tl.load(w + n[None, :] * K + (first + k)[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        thin = tl.load(down + (first + k)[:, None] * RANK + r[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(one, two, total)
        low = tl.dot(one, thin, low)
    wide = tl.load(up + r[:, None] * N + n[None, :], mask=(n < N)[None, :], other=0.0)
    total += tl.dot((low * scale).to(tl.float16), wide)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def _adapted(draw: Draw, s: Sizes, *, rank: int = 16) -> Call:
    x, w, down, up = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.k, rank), draw.dense(rank, s.n)

    def expected() -> Array:
        a, b, c, d = _wide(x, w, down, up)
        return a @ b.T + 0.25 * (a @ c) @ d

    outputs = {"y": np.empty((s.m, s.n), np.float16)}
    return _call(s, s.grid, outputs, expected, x=x, w=w, down=down, up=up, scale=0.25, RANK=rank)


@triton.jit
def flat_indices(y, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] by x [K, N], each address made of one flat number, as generated code has it."""
    tiles = (N + BN - 1) // BN
    row = (tl.program_id(0) // tiles) * BM
    column = (tl.program_id(0) % tiles) * BN
    flat_w = tl.arange(0, BM * BK)
    flat_x = tl.arange(0, BK * BN)
    flat_y = tl.arange(0, BM * BN)
    sums = tl.full((BM, BN), 0.0, tl.float32)
    for step in range((K + BK - 1) // BK):
        wm, wk = row + flat_w // BK, step * BK + flat_w % BK
        xk, xn = step * BK + flat_x // BN, column + flat_x % BN
        left = tl.load(w + (wm * K + wk), (wm < M) & (wk < K), 0.0).reshape((BM, BK))
        right = tl.load(x + (xk * N + xn), (xk < K) & (xn < N), 0.0).reshape((BK, BN))
        sums = tl.dot(left, right, sums)
    ym, yn = row + flat_y // BN, column + flat_y % BN
    tl.store(y + (ym * N + yn), sums.reshape((BM * BN,)).to(tl.float16), (ym < M) & (yn < N))


@triton.jit
def nested_indices(y, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] by x [K, N]: outer loops over tiles, sums of offsets nested deep, as generated code has them."""
    tile = tl.program_id(0)
    tiles = tl.cdiv(N, BN)
    bm, bn, bk = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :], tl.arange(0, BK)
    y0 = (tile // tiles) * (BM * N) + (tile % tiles) * BN
    w0 = (tile // tiles) * (BM * K)
    rows, columns = (tile // tiles) * BM + bm, (tile % tiles) * BN + bn
    sums = tl.zeros((BM, BN), tl.float32)
    for i in range(tl.cdiv(K, BK)):
        a = tl.load(w + (w0 + bm * K + (bk[None, :] + i * BK)), mask=(rows < M) & (bk[None, :] + i * BK < K), other=0.0)
        b = tl.load(
            x + ((tile % tiles) * BN + bn + (bk[:, None] + i * BK) * N),
            mask=(columns < N) & (bk[:, None] + i * BK < K),
            other=0.0,
        )
        sums += tl.dot(a, b)
    tl.store(y + (y0 + bm * N + bn), sums.to(tl.float16), mask=(rows < M) & (columns < N))


def _flat(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    outputs = {"y": np.empty((s.m, s.n), np.float16)}
    return _call(s, (s.flat,), outputs, lambda: w.astype(np.float64) @ x.astype(np.float64), x=x, w=w)


@triton.jit
def added_matrix(
    y, x, w, c, alpha, beta, M, N, K, c_row, c_column, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = beta · c + alpha · x [M, K] by w [N, K]; c by its strides, which may be 0."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        two = tl.load(w + k[:, None] + n[None, :] * K, mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(one, two, allow_tf32=False)
        k += BK
    inside = (m[:, None] < M) & (n[None, :] < N)
    other = tl.load(c + m[:, None] * c_row + n[None, :] * c_column, mask=inside, other=0.0)
    result = total * alpha + other.to(tl.float32) * beta
    tl.store(y + m[:, None] * N + n[None, :], result.to(c.dtype.element_ty), mask=inside)


def _added(draw: Draw, s: Sizes, *, row: bool) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    c = draw.dense(1 if row else s.m, s.n)

    def expected() -> Array:
        a, b, other = _wide(x, w, c)
        return 0.5 * other + 2 * a @ b.T

    outputs = {"y": np.empty((s.m, s.n), np.float16)}
    more = {"alpha": 2.0, "beta": 0.5, "c_row": 0 if row else s.n, "c_column": 1}
    return _call(s, s.grid, outputs, expected, x=x, w=w, c=c, **more)


@triton.jit
def attention_chunks(
    y, q, k, v, w, M, N, K, batch, head, heads, scale,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A chunk of linear attention with its output's projection.

    q, k, v [B, heads, M, K], in chunks of BM; y [B · heads, M, N] = (causal(q · kᵀ) · v) · wᵀ with w [N, K], K = BK.
    """
    chunk, of_n, at = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, h = at // heads, at % heads
    base = b.to(tl.int64) * batch + h * head
    m, n, d = chunk * BM + tl.arange(0, BM), of_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    rows = base + m[:, None] * K + d[None, :]
    inside = (m < M)[:, None] & (d < K)[None, :]
    of_q = tl.load(q + rows, mask=inside, other=0.0)
    of_k = tl.load(k + rows, mask=inside, other=0.0)
    of_v = tl.load(v + rows, mask=inside, other=0.0)
    scores = tl.dot(of_q, tl.trans(of_k)) * scale
    scores = tl.where(m[:, None] >= m[None, :], scores, 0.0)
    read = tl.dot(scores.to(of_v.dtype), of_v)
    weight = tl.load(w + n[None, :] * K + d[:, None], mask=(n < N)[None, :] & (d < K)[:, None], other=0.0)
    out = tl.dot(read.to(weight.dtype), weight)
    tl.store(
        y + at.to(tl.int64) * M * N + m[:, None] * N + n[None, :],
        out.to(tl.float16),
        mask=(m < M)[:, None] & (n < N)[None, :],
    )


def _attention(draw: Draw, s: Sizes, *, batch: int = 2, heads: int = 3) -> Call:
    q, k, v = (draw.dense(batch, heads, s.m, s.k) / np.float16(4) for _ in range(3))
    w = draw.pruned(s.n, s.k)

    def expected() -> Array:
        a, b, c, d = _wide(q, k, v, w)
        out = np.zeros((batch, heads, s.m, s.k))
        for first in range(0, s.m, s.BM):
            rows = slice(first, first + s.BM)
            out[:, :, rows] = np.tril(a[:, :, rows] @ b[:, :, rows].swapaxes(2, 3)) * 0.5 @ c[:, :, rows]
        return (out @ d.T).reshape(batch * heads, s.m, s.n)

    sizes = {"batch": heads * s.m * s.k, "head": s.m * s.k, "heads": heads, "scale": 0.5}
    grid = (*s.grid, batch * heads)
    times = batch * heads * (1 + 2 * s.BM / s.n)
    return _call(
        s,
        grid,
        {"y": np.empty((batch * heads, s.m, s.n), np.float16)},
        expected,
        times=times,
        q=q,
        k=k,
        v=v,
        w=w,
        **sizes,
    )


@triton.jit
def chunk_states(
    y, x, w, decay, M, N, K, sb, sc, sh, sk, db, dc, dh, chunks, heads,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """States of a chunk: y [B, chunks, heads, M, N] = w [M, K] by (decay · x), x [B, chunks, heads, K, N] by four strides."""
    tiles = tl.cdiv(N, BN)
    tile_m, tile_n = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    batch, chunk, head = tl.program_id(1) // chunks, tl.program_id(1) % chunks, tl.program_id(2)
    x += batch * sb + chunk * sc + head * sh
    decay += batch * db + chunk * dc + head * dh
    m, n, k = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN), tl.arange(0, BK)
    w_at = w + (m[:, None] * K + k[None, :])
    x_at = x + (k[:, None] * sk + n[None, :])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - first), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - first) & (n[None, :] < N), other=0.0).to(tl.float32)
        by = tl.exp(tl.load(decay + first + k, mask=k < K - first, other=0.0))
        total += tl.dot(left, (right * by[:, None]).to(left.dtype))
        w_at += BK
        x_at += BK * sk
    y += ((batch * chunks + chunk) * heads + head) * M * N
    tl.store(y + (m[:, None] * N + n[None, :]), total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _states(draw: Draw, s: Sizes, *, shape: tuple[int, int, int] = (2, 2, 2)) -> Call:
    batch, chunks, heads = shape
    w, x = draw.pruned(s.m, s.k), draw.dense(*shape, s.k, s.n)
    decay = -draw.rng.uniform(0, 1, (*shape, s.k)).astype(np.float32)

    def expected() -> Array:
        a, b, c = _wide(w, x, decay)
        return a @ (np.exp(c)[..., None] * b)

    sizes = {
        "sb": x[0].size, "sc": x[0, 0].size, "sh": x[0, 0, 0].size, "sk": s.n, "db": decay[0].size, "dc": decay[0, 0].size,
        "dh": s.k, "chunks": chunks, "heads": heads,
    }  # fmt: skip
    grid = (s.flat, batch * chunks, heads)
    outputs = {"y": np.empty((*shape, s.m, s.n), np.float16)}
    return _call(s, grid, outputs, expected, times=batch * chunks * heads, x=x, w=w, decay=decay, **sizes)


@triton.jit
def changed_tile(
    y, x, w, factor, sums, M, N, K, HOW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y [M, N] = f(w) [M, K] by x [K, N], f by HOW: "cast", "scale" (a row's), "mask" (a triangle), or "sum" (its rows' sums too)."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total, of_rows = tl.zeros((BM, BN), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(w + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(x + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if HOW == "cast":
            left = left.to(right.dtype)
        elif HOW == "scale":
            left = (left * tl.load(factor + m, mask=m < M, other=0.0)[:, None]).to(right.dtype)
        elif HOW == "mask":
            left = tl.where(k[None, :] <= m[:, None] * 2, left, 0.0)
        elif HOW == "sum":
            of_rows += tl.sum(left.to(tl.float32), axis=1)
        total = tl.dot(left, right, total)
    if HOW == "sum":
        tl.store(sums + m, of_rows, mask=(m < M) & (tl.program_id(1) == 0))
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _changed(draw: Draw, s: Sizes, *, how: str, element: str = "f16") -> Call:
    w, x = draw.pruned(s.m, s.k, element=element), draw.dense(s.k, s.n)
    factor = draw.rng.uniform(0.5, 2, s.m).astype(np.float16)

    def expected() -> Any:
        a, b, by = _wide(w, x, factor)
        if how == "scale":
            a = a * by[:, None]
        if how == "mask":
            a = np.where(np.arange(s.k)[None, :] <= 2 * np.arange(s.m)[:, None], a, 0)
        return (a @ b, a.sum(1)) if how == "sum" else a @ b

    outputs = {"y": np.empty((s.m, s.n), np.float16)}
    sums = np.empty(s.m, np.float32)
    more: dict[str, Any] = {"factor": factor, "HOW": how}
    if how == "sum":
        outputs["sums"] = sums
    else:
        more["sums"] = sums
    return _call(s, s.grid, outputs, expected, x=x, w=w, **more)


@triton.jit
def quantized_rows(y, x, x_scale, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = (x · scale) by w [N, K]: x [M, K] in 8 bits, made f16 in the loop."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    scale = tl.load(x_scale + m, mask=m < M, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot((one.to(tl.float32) * scale[:, None]).to(tl.float16), two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _quantized(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k, element="s8"), draw.pruned(s.n, s.k)
    scale = draw.rng.uniform(0.01, 0.1, s.m).astype(np.float32)

    def expected() -> Array:
        a, b, by = _wide(x, w, scale)
        return (a * by[:, None]) @ b.T

    return _call(s, s.grid, {"y": np.empty((s.m, s.n), np.float16)}, expected, x=x, w=w, x_scale=scale)


@triton.jit
def part_of_a_weight(y, x, w, rows, first_k, last_k, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [rows, N] = w[:rows, first_k:last_k] by x [last_k - first_k, N], of a weight [M, K]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    if tl.program_id(0) * BM >= rows:
        return
    for first in range(first_k, last_k, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(w + m[:, None] * K + k[None, :], mask=(m[:, None] < rows) & (k[None, :] < last_k), other=0.0)
        right = tl.load(
            x + (k - first_k)[:, None] * N + n[None, :], mask=(k[:, None] < last_k) & (n[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < rows) & (n[None, :] < N))


def _part(draw: Draw, s: Sizes, *, spare: int = 0) -> Call:
    rows, first, last = s.m - 40, 64, s.k - 16
    w, x = draw.pruned(s.m, s.k), draw.dense(last - first, s.n)

    def expected() -> Array:
        a, b = _wide(w, x)
        return a[:rows, first:last] @ b

    outputs = {"y": np.empty((rows, s.n), np.float16)}
    grid = (s.grid[0] + spare, s.grid[1])
    return _call(s, grid, outputs, expected, x=x, w=w, rows=rows, first_k=first, last_k=last)


@triton.jit
def two_activations(y, x, z, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = gelu(x) · wᵀ + z · wᵀ: one sparse tile for two dots, one operand changed on its way."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    rows = m[:, None] * K + k[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside = (m[:, None] < M) & (k[None, :] < K - step * BK)
        one = tl.load(x + rows + step * BK, mask=inside, other=0.0).to(tl.float32)
        plain = tl.load(z + rows + step * BK, mask=inside, other=0.0)
        weight = tl.load(
            w + n[None, :] * K + k[:, None] + step * BK, mask=(n[None, :] < N) & (k[:, None] < K - step * BK), other=0.0
        )
        made = (one * tl.sigmoid(1.702 * one)).to(tl.float16)
        total = tl.dot(made, weight, total)
        total = tl.dot(plain, weight, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _two(draw: Draw, s: Sizes) -> Call:
    x, z, w = draw.dense(s.m, s.k), draw.dense(s.m, s.k), draw.pruned(s.n, s.k)

    def expected() -> Array:
        a, b, c = _wide(x, z, w)
        return (a / (1 + np.exp(-1.702 * a)) + b) @ c.T

    return _call(s, s.grid, {"y": np.empty((s.m, s.n), np.float16)}, expected, times=2, x=x, z=z, w=w)


SMALL = Sizes(150, 208, 272, 64, 64, 64)
LARGE = (Sizes(4096, 4096, 4096, 128, 128, 64), Sizes(4096, 4096, 4096, 64, 64, 64))

FORMS = (
    Form("a projection's loss", projected_loss, _loss, SMALL, LARGE, "other"),
    Form("a normed product", normed_product, _normed, SMALL, LARGE, "other"),
    Form("an adapted product", adapted_product, _adapted, SMALL, LARGE, "other"),
    Form("flat indices", flat_indices, _flat, SMALL, LARGE),
    Form("nested indices", nested_indices, _flat, SMALL, LARGE),
    Form("an added matrix", added_matrix, partial(_added, row=False), SMALL, LARGE),
    Form("an added row", added_matrix, partial(_added, row=True), SMALL, LARGE),
    Form(
        "chunks of linear attention", attention_chunks, _attention, Sizes(130, 136, 64, 64, 64, 64),
        (Sizes(4096, 2048, 128, 128, 128, 128), Sizes(4096, 2048, 64, 64, 64, 64)), "attention",
    ),
    Form("states of chunks", chunk_states, _states, Sizes(136, 80, 144, 64, 64, 64), (Sizes(2048, 2048, 1024, 128, 128, 64),), "other"),
    *(
        Form(f"a weight's tile, {name}", changed_tile, partial(_changed, how=how, element=element), SMALL, LARGE, "other")
        for name, how, element in (
            ("cast", "cast", "s8"), ("cast down", "cast", "f32"), ("scaled", "scale", "f16"), ("masked", "mask", "f16"), ("summed", "sum", "f16"),
        )
    ),
    Form("8-bit activations", quantized_rows, _quantized, SMALL, LARGE),
    Form("part of a weight", part_of_a_weight, _part, SMALL, LARGE),
    Form("part of a weight, spare programs", part_of_a_weight, partial(_part, spare=2), SMALL, LARGE),
    Form("two activations", two_activations, _two, SMALL, LARGE, "other"),
)  # fmt: skip
