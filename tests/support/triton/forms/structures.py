"""Kernels in the structures of public libraries: adapters, jagged batches, convolutions, losses over a vocabulary, grouped products."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, square, wide

ADAPTERS = 3
SIDE = 5
TAPS = 3


@triton.jit
def adapter_down(
    x, w, y, lengths, begins, adapters, scales, K, R, x_row, w_adapter, w_row, y_part, y_row,
    PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [PARTS, tokens, R] = rows of each sequence of x [tokens, K] by its adapter of w [adapters, R, K], in parts of K."""
    tile, part, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + batch)
    if tile * BM >= length:
        return
    begin, adapter = tl.load(begins + batch), tl.load(adapters + batch)
    scale = tl.load(scales + adapter)
    row = tile * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    x_at = x + (begin + row)[:, None] * x_row + k[None, :]
    w_at = w + adapter * w_adapter + n[None, :] * w_row + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * PARTS)):
        left = K - step * BK * PARTS
        one = tl.load(x_at, mask=(row < length)[:, None] & (k[None, :] < left), other=0.0)
        two = tl.load(w_at, mask=(n[None, :] < R) & (k[:, None] < left), other=0.0)
        total += tl.dot(one, two)
        x_at += BK * PARTS
        w_at += BK * PARTS
    at = y + part * y_part + (begin + row)[:, None] * y_row + n[None, :]
    tl.store(at, total * scale, mask=(row < length)[:, None] & (n[None, :] < R))


def _sequences(draw: Draw, m: int) -> tuple[Array, Array, Array, Array]:
    """Lengths and beginnings of three sequences, the adapter of each, and that of each token."""
    lengths = np.array([m // 2, 1, m - m // 2 - 1], np.int32)
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int32)
    adapters = draw.rng.permutation(ADAPTERS)[: len(lengths)].astype(np.int32)
    return lengths, begins, adapters, np.repeat(adapters, lengths)


def _down(draw: Draw, s: Sizes, *, parts: int) -> Call:
    lengths, begins, adapters, owner = _sequences(draw, s.m)
    x, w = draw.dense(s.m, s.k), draw.pruned(ADAPTERS, s.n, s.k)
    scales = draw.rng.uniform(0.5, 2, ADAPTERS).astype(np.float32)

    def expected() -> dict[str, Array]:
        found = np.zeros((parts, s.m, s.n))
        for part in range(parts):
            steps = np.arange(s.k) // s.BK % parts == part
            found[part] = np.einsum("mk,mnk->mn", wide(x)[:, steps], wide(w)[owner][..., steps]) * scales[owner, None]
        return {"y": found}

    return Call(
        {
            "x": x, "w": w, "y": np.empty((parts, s.m, s.n), np.float32), "lengths": lengths, "begins": begins,
            "adapters": adapters, "scales": scales, "R": s.n, "x_row": s.k, "w_adapter": s.n * s.k, "w_row": s.k,
            "y_part": s.m * s.n, "y_row": s.n, "PARTS": parts,
        },
        expected,
        grid=(-(-s.m // s.BM), parts, len(lengths)),
    )  # fmt: skip


@triton.jit
def adapter_up(
    x, w, y, lengths, begins, adapters, N, R, w_adapter, SLICE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [tokens, N] += x [tokens, R] by the adapter's w [adapters, N, R], of which rows from SLICE on are one of several weights."""
    batch = tl.program_id(2)
    length, begin, adapter = tl.load(lengths + batch), tl.load(begins + batch), tl.load(adapters + batch)
    if tl.program_id(0) * BM >= length:
        return
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    one = tl.load(
        x + (begin + row)[:, None] * R + k[None, :], mask=(row < length)[:, None] & (k < R)[None, :], other=0.0
    )
    at = w + adapter * w_adapter + (SLICE + n)[None, :] * R + k[:, None]
    two = tl.load(at, mask=(n < N)[None, :] & (k < R)[:, None], other=0.0)
    out = y + (begin + row)[:, None] * N + n[None, :]
    inside = (row < length)[:, None] & (n < N)[None, :]
    before = tl.load(out, mask=inside, other=0.0)
    tl.store(out, (tl.dot(one, two) + before).to(tl.float16), mask=inside)


def _up(draw: Draw, s: Sizes, *, first: int) -> Call:
    lengths, begins, adapters, owner = _sequences(draw, s.m)
    x, w = draw.dense(s.m, s.k), draw.pruned(ADAPTERS, s.n + first, s.k)
    return Call(
        {
            "x": x, "w": w, "y": np.empty((s.m, s.n), np.float16), "lengths": lengths, "begins": begins, "adapters": adapters,
            "N": s.n, "R": s.k, "w_adapter": (s.n + first) * s.k, "SLICE": first,
        },
        lambda: {"y": np.einsum("mk,mnk->mn", wide(x), wide(w)[owner][:, first:])},
        grid=(-(-s.m // s.BM), -(-s.n // s.BN), len(lengths)),
        zeroed=True,
    )  # fmt: skip


@triton.jit
def jagged(
    y, x, w, ends, N, K, w_batch, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Rows of y [rows, N] = rows of each sequence of x [rows, K] by w [batch, K, N], sparse along K. ends: of the sequences."""
    batch = tl.program_id(2)
    begin, end = tl.load(ends + batch).to(tl.int64), tl.load(ends + batch + 1)
    length = (end - begin).to(tl.int32)
    first = tl.program_id(0) * BM
    if first >= length:
        return
    m = first + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x += begin * K
    w += batch.to(tl.int64) * w_batch
    y += begin * N
    x_at = x + m[:, None] * K + tl.arange(0, BK)[None, :]
    w_at = w + tl.arange(0, BK)[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = K - k
        one = tl.load(x_at, mask=(m < length)[:, None] & (tl.arange(0, BK) < left)[None, :], other=0.0)
        two = tl.load(w_at, mask=(tl.arange(0, BK) < left)[:, None] & (n < N)[None, :], other=0.0)
        total += tl.dot(one, two)
        x_at += BK
        w_at += BK * N
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < length)[:, None] & (n < N)[None, :])


def _jagged(draw: Draw, s: Sizes) -> Call:
    lengths, _, _, _ = _sequences(draw, s.m)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    x, stored = draw.dense(s.m, s.k), draw.pruned(len(lengths), s.n, s.k)
    w = np.ascontiguousarray(stored.swapaxes(-1, -2))
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "ends": ends, "w_batch": s.n * s.k},
        lambda: {"y": np.einsum("mk,mkn->mn", wide(x), wide(w)[owner])},
        grid=(-(-s.m // s.BM), -(-s.n // s.BN), len(lengths)),
        axes={"w": -2},
    )


@triton.jit
def convolution(
    y, x, w, M, N, C, SIDE: tl.constexpr, TAPS: tl.constexpr, FLAT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [spots, N] = 3×3 neighbourhoods of x [images, SIDE, SIDE, C] by w [N, TAPS, TAPS, C]: an implicit product. FLAT: one
    loop over taps and channels, whose numbers are divided; else a loop over steps of all taps.
    """
    spot = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    across, down, image = spot % SIDE, spot // SIDE % SIDE, spot // (SIDE * SIDE)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    if FLAT:
        for start in range(0, TAPS * TAPS * C, BK):
            j = start + tl.arange(0, BK)
            tap, c = j // C, j % C
            row, column = down[:, None] + tap[None, :] // TAPS - 1, across[:, None] + tap[None, :] % TAPS - 1
            inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE) & (spot < M)[:, None]
            inside = inside & (j < TAPS * TAPS * C)[None, :]
            one = tl.load(x + ((image[:, None] * SIDE + row) * SIDE + column) * C + c[None, :], mask=inside, other=0.0)
            at = w + n[None, :] * (TAPS * TAPS * C) + tap[:, None] * C + c[:, None]
            two = tl.load(at, mask=(n < N)[None, :] & (j < TAPS * TAPS * C)[:, None], other=0.0)
            total += tl.dot(one, two)
    else:
        steps = (C + BK - 1) // BK
        for step in range(TAPS * TAPS * steps):
            c = step % steps * BK + tl.arange(0, BK)
            tap = step // steps
            j = tap % TAPS
            i = tap // TAPS
            row, column = down + i - 1, across + j - 1
            inside = (row >= 0) & (row < SIDE) & (column >= 0) & (column < SIDE) & (spot < M)
            at = x + ((image * SIDE + row) * SIDE + column)[:, None] * C + c[None, :]
            one = tl.load(at, mask=inside[:, None] & (c < C)[None, :], other=0.0)
            at = w + n[None, :] * (TAPS * TAPS * C) + (i * TAPS + j) * C + c[:, None]
            two = tl.load(at, mask=(c < C)[:, None] & (n < N)[None, :], other=0.0)
            total += tl.dot(one, two)
    tl.store(y + spot[:, None] * N + n[None, :], total.to(tl.float16), mask=(spot < M)[:, None] & (n < N)[None, :])


def _convolution(draw: Draw, s: Sizes, *, flat: bool) -> Call:
    images = -(-s.m // (SIDE * SIDE))
    spots, channels = images * SIDE * SIDE, s.k
    x, w = draw.dense(images, SIDE, SIDE, channels), draw.pruned(s.n, TAPS, TAPS, channels)

    def expected() -> dict[str, Array]:
        padded = np.pad(wide(x), ((0, 0), (1, 1), (1, 1), (0, 0)))
        parts = [padded[:, i : i + SIDE, j : j + SIDE] @ wide(w)[:, i, j].T for i in range(TAPS) for j in range(TAPS)]
        return {"y": sum(parts[1:], parts[0]).reshape(spots, s.n)}

    return Call(
        {
            "y": np.empty((spots, s.n), np.float16),
            "x": x,
            "w": w,
            "M": spots,
            "N": s.n,
            "C": channels,
            "SIDE": SIDE,
            "TAPS": TAPS,
            "FLAT": flat,
        },
        expected,
        grid=(-(-spots // s.BM), -(-s.n // s.BN)),
        operations=2.0 * spots * s.n * channels * TAPS * TAPS,
    )


@triton.jit
def loss_over_words(
    loss, x, w, targets, M, V, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """loss [M] = log of the sum of exponentials of x [M, K] · w [V, K]ᵀ, minus the logit of the target: a loop in a loop."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    target = tl.load(targets + m, mask=m < M, other=0)
    most = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    right = tl.zeros((BM,), tl.float32)
    for first in range(0, V, BN):
        v = first + tl.arange(0, BN)
        x_at = x + m[:, None] * K + tl.arange(0, BK)[None, :]
        w_at = w + v[:, None] * K + tl.arange(0, BK)[None, :]
        logits = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            inside = tl.arange(0, BK) < K - k
            one = tl.load(x_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
            two = tl.load(w_at, mask=(v < V)[:, None] & inside[None, :], other=0.0)
            logits = tl.dot(one, two.T, logits)
            x_at += BK
            w_at += BK
        logits = tl.where((v < V)[None, :], logits, float("-inf"))
        right += tl.sum(tl.where(v[None, :] == target[:, None], logits, 0.0), 1)
        higher = tl.maximum(most, tl.max(logits, 1))
        weight = weight * tl.exp(most - higher) + tl.sum(tl.exp(logits - higher[:, None]), 1)
        most = higher
    tl.store(loss + m, tl.log(weight) + most - right, mask=m < M)


def _loss(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    targets = draw.rng.integers(0, s.n, s.m).astype(np.int32)

    def expected() -> dict[str, Array]:
        logits = wide(x) @ wide(w).T
        most = logits.max(1, keepdims=True)
        return {"loss": np.log(np.exp(logits - most).sum(1)) + most[:, 0] - logits[np.arange(s.m), targets]}

    return Call(
        {"loss": np.empty(s.m, np.float32), "x": x, "w": w, "targets": targets, "V": s.n},
        expected,
        outputs=("loss",),
        grid=(-(-s.m // s.BM),),
    )


@triton.jit
def grouped_in_turn(
    y, x, w, sizes, N, K, G: tl.constexpr, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [rows, N] = rows of each group of x by w [G · N, K]ᵀ: programs take tiles of all groups in turn; sizes are loaded."""
    tile = tl.program_id(0)
    before, begin = 0, 0
    tiles_n = tl.cdiv(N, BN)
    for g in range(G):
        length = tl.load(sizes + g)
        tiles = tl.cdiv(length, BM) * tiles_n
        while tile >= before and tile < before + tiles:
            inner = tile - before
            m = inner // tiles_n * BM + tl.arange(0, BM)
            n = inner % tiles_n * BN + tl.arange(0, BN)
            k = tl.arange(0, BK)
            total = tl.zeros((BM, BN), dtype=tl.float32)
            x_at = x + (begin + m[:, None]) * K + k[None, :]
            w_at = w + (g * N + n[:, None]) * K + k[None, :]
            for start in range(0, K, BK):
                one = tl.load(x_at, mask=(m < length)[:, None] & (k < K - start)[None, :], other=0.0)
                two = tl.load(w_at, mask=(n < N)[:, None] & (k < K - start)[None, :], other=0.0)
                total += tl.dot(one, two.T)
                x_at += BK
                w_at += BK
            at = y + (begin + m[:, None]) * N + n[None, :]
            tl.store(at, total.to(tl.float16), mask=(m < length)[:, None] & (n < N)[None, :])
            tile += PROGRAMS
        before += tiles
        begin += length


def _grouped(draw: Draw, s: Sizes) -> Call:
    lengths, _, _, _ = _sequences(draw, s.m)
    x, w = draw.dense(s.m, s.k), draw.pruned(len(lengths) * s.n, s.k)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "sizes": lengths, "G": len(lengths), "PROGRAMS": 3},
        lambda: {"y": np.einsum("mk,mnk->mn", wide(x), wide(w).reshape(len(lengths), s.n, s.k)[owner])},
        grid=(3,),
    )


@triton.jit
def each_chunk(
    y, c, w, decay, M, N, K, H, ratio, c_head, w_group, y_head, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [heads, M, N] = (c [heads, M, K] · exp(decay [heads, K])) by w [groups, N, K]ᵀ: several heads share a group."""
    head = tl.program_id(2)
    c += head * c_head
    w += (head // ratio) * w_group
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    c_at = c + (m[:, None] * K + k[None, :])
    w_at = w + (n[None, :] * K + k[:, None])
    d_at = decay + head * K + k
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        one = tl.load(c_at, mask=(m[:, None] < M) & (k[None, :] < K - start), other=0.0).to(tl.float32)
        by = tl.exp(tl.load(d_at, mask=k < K - start, other=0.0))
        two = tl.load(w_at, mask=(k[:, None] < K - start) & (n[None, :] < N), other=0.0)
        total += tl.dot((one * by[None, :]).to(tl.float16), two)
        c_at += BK
        w_at += BK
        d_at += BK
    tl.store(
        y + head * y_head + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N)
    )


def _chunks(draw: Draw, s: Sizes) -> Call:
    heads, ratio = 4, 2
    c, w = draw.dense(heads, s.m, s.k), draw.pruned(heads // ratio, s.n, s.k)
    decay = draw.rng.uniform(-1, 0, (heads, s.k)).astype(np.float32)
    return Call(
        {
            "y": np.empty((heads, s.m, s.n), np.float16), "c": c, "w": w, "decay": decay, "H": heads, "ratio": ratio,
            "c_head": s.m * s.k, "w_group": s.n * s.k, "y_head": s.m * s.n,
        },
        lambda: {"y": np.einsum("hmk,hnk->hmn", wide(c) * np.exp(wide(decay))[:, None], wide(w).repeat(ratio, 0))},
        grid=(*s.grid, heads),
    )  # fmt: skip


@triton.jit
def template(
    A, B, out, M, N, K, stride_am, stride_bn,
    GROUP: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out [M, N] = A [M, K] by B [N, K]ᵀ with wrapped rows, hints and grouped tiles, as a compiler of PyTorch writes it."""
    pid = tl.program_id(0)
    grid_m, grid_n = (M + BM - 1) // BM, (N + BN - 1) // BN
    width = GROUP * grid_n
    group = pid // width
    size = min(grid_m - group * GROUP, GROUP)
    pid_m = group * GROUP + (pid % size)
    pid_n = (pid % width) // size
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BM), BM)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BN), BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range((K + BK - 1) // BK):
        k = step * BK + tl.arange(0, BK)
        xindex = k[None, :] + stride_am * ram[:, None]
        one = tl.load(A + xindex, mask=(k < K)[None, :], other=0.0)
        yindex = k[:, None] + stride_bn * rbn[None, :]
        two = tl.load(B + yindex, mask=(k < K)[:, None], other=0.0)
        total += tl.dot(one, two, allow_tf32=True)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    index = rn[None, :] + N * rm[:, None]
    tl.store(out + index, tl.maximum(total, 0.0), (rm[:, None] < M) & (rn[None, :] < N))


def _template(draw: Draw, s: Sizes, *, sparse: str) -> Call:
    a, b = draw.dense(s.m, s.k), draw.dense(s.n, s.k)
    a, b = (draw.pruned(s.m, s.k), b) if sparse == "A" else (a, draw.pruned(s.n, s.k))
    return Call(
        {
            "A": a,
            "B": b,
            "out": np.empty((s.m, s.n), np.float32),
            "stride_am": s.k,
            "stride_bn": s.k,
            "GROUP": 2,
            "EVEN": False,
        },
        lambda: {"out": np.maximum(wide(a) @ wide(b).T, 0)},
        outputs=("out",),
        sparse=(sparse,),
        grid=(s.flat,),
    )


@triton.jit
def pieces_added(
    x, w, y, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] += x [M, K] by w [N, K]ᵀ: programs take each PARTS-th step of K, rows wrap, and sums are added atomically."""
    pid, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, BN)
    m = pid // tiles_n * BM + tl.arange(0, BM)
    n = pid % tiles_n * BN + tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    rows = tl.max_contiguous(tl.multiple_of(n % N, BN), BN)
    x_at = x + (m % M)[:, None] * K + k[None, :]
    w_at = w + rows[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * PARTS)):
        inside = k < K - step * BK * PARTS
        one = tl.load(x_at, mask=inside[None, :], other=0.0)
        two = tl.load(w_at, mask=inside[:, None], other=0.0, eviction_policy="evict_first")
        total = tl.dot(one, two, acc=total)
        x_at += BK * PARTS
        w_at += BK * PARTS
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :], sem="relaxed")


def _pieces(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    return Call(
        {"x": x, "w": w, "y": np.empty((s.m, s.n), np.float32), "PARTS": 2},
        lambda: {"y": wide(x) @ wide(w).T},
        grid=(s.flat, 2),
        zeroed=True,
    )


@triton.jit
def tiles_of_ranks(
    y, x, w, ready, rank, M, N, K, RANKS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K]ᵀ: programs begin with the tiles of their rank, and wait for those of others."""
    tiles_m = tl.cdiv(M, BM)
    each = tl.cdiv(tiles_m, RANKS)
    pid_m = (tl.program_id(0) + rank * each) % tiles_m
    if tl.load(ready + pid_m // each) == 0:
        return
    m = pid_m * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + n[:, None] * K + k[None, :]
    x_at = x + m[:, None] * K + k[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside = k[None, :] < K - step * BK
        total = tl.dot(
            tl.load(x_at, mask=(m < M)[:, None] & inside, other=0.0),
            tl.load(w_at, mask=(n < N)[:, None] & inside, other=0.0).T,
            total,
        )
        x_at += BK
        w_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def _ranks(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "ready": np.ones(2, np.int32), "rank": 1, "RANKS": 2},
        lambda: {"y": wide(x) @ wide(w).T},
    )


SMALL = Sizes(40, 56, 144, 32, 32, 64)


def _form(name: str, kernel: Any, build: Any, small: Sizes = SMALL, large: Sizes | None = None, **kept: Any) -> Form:
    return Form(name, kernel, build, small, square(2048, (128, 128, 64)) if large is None else (large,), **kept)


DOWN, UP, TAPPED = (
    Sizes(4096, 16, 4096, 16, 16, 64),
    Sizes(4096, 4096, 64, 64, 128, 64),
    Sizes(16384, 256, 256, 128, 128, 64),
)

FORMS: tuple[Form, ...] = (
    _form("adapters down", adapter_down, partial(_down, parts=1), Sizes(40, 16, 144, 16, 16, 64), DOWN),
    _form("adapters down in parts", adapter_down, partial(_down, parts=2), Sizes(40, 16, 208, 16, 16, 64), DOWN),
    _form("adapters up", adapter_up, partial(_up, first=0), Sizes(40, 56, 64, 16, 32, 64), UP),
    _form("adapters up in slices", adapter_up, partial(_up, first=24), Sizes(40, 56, 32, 16, 32, 32), replace(UP, k=32, BK=32)),
    _form("jagged batch", jagged, _jagged),
    _form("convolution", convolution, partial(_convolution, flat=False), Sizes(40, 24, 80, 32, 32, 64), TAPPED),
    _form("convolution, flat", convolution, partial(_convolution, flat=True), Sizes(40, 24, 32, 32, 32, 64), TAPPED),
    _form("loss over words", loss_over_words, _loss, tolerance=2.0**-9),
    _form("groups in turn", grouped_in_turn, _grouped),
    _form("chunks of heads", each_chunk, _chunks),
    *(_form(f"template, {sparse} sparse", template, partial(_template, sparse=sparse)) for sparse in "AB"),
    _form("pieces added", pieces_added, _pieces),
    _form("tiles of ranks", tiles_of_ranks, _ranks),
)  # fmt: skip
