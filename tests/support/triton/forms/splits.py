"""Products whose K is shared out: among programs, by streams of steps, in parts that are summed later, and with a tail behind the loop."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes

SPLIT = 3
STREAMS = 7


@triton.jit
def added_parts(
    y, x, w, factor, M, N, K, SPLIT: tl.constexpr, ROUNDS: tl.constexpr, SCALED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] += x [M, K] by w [N, K]: programs along z take every SPLIT-th step (ROUNDS), or neighbouring ones."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    steps = tl.cdiv(K, BK * SPLIT)
    k = (part if ROUNDS else part * steps) * BK + tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(steps):
        one = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        two = tl.load(w_at, mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(one, two, total)
        k += BK * (SPLIT if ROUNDS else 1)
        x_at += BK * (SPLIT if ROUNDS else 1)
        w_at += BK * (SPLIT if ROUNDS else 1)
    if SCALED:
        total *= tl.load(factor + n, mask=n < N, other=0.0)[None, :]
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N), sem="relaxed")


@triton.jit
def parts_apart(y, x, w, M, N, K, share, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [parts, M, N]: the sums of each part of K, `share` columns long, that another kernel adds."""
    tile, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, BN)
    m = tile // tiles_n * BM + tl.arange(0, BM)
    n = tile % tiles_n * BN + tl.arange(0, BN)
    begin = part * share
    end = tl.minimum(begin + share, K)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(begin, end, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(w + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < end), other=0.0)
        two = tl.load(x + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < end), other=0.0)
        total += tl.dot(one, two)
    at = y + part.to(tl.int64) * M * N + m[:, None] * N + n[None, :]
    tl.store(at, total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def last_adds(
    y, x, w, room, arrived, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Parts go to memory; the program that arrives last at a tile adds them up and writes it."""
    tile, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, BN)
    m = tile // tiles_n * BM + tl.arange(0, BM)
    n = tile % tiles_n * BN + tl.arange(0, BN)
    inside = (m[:, None] < M) & (n[None, :] < N)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(part * BK, K, BK * SPLIT):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(one, two, total)
    at = m[:, None] * N + n[None, :]
    tl.store(room + part * M * N + at, total, mask=inside)
    if tl.atomic_add(arrived + tile, 1) == SPLIT - 1:
        whole = tl.zeros((BM, BN), dtype=tl.float32)
        for each in range(SPLIT):
            whole += tl.load(room + each * M * N + at, mask=inside, other=0.0)
        tl.store(y + at, whole.to(tl.float16), mask=inside)
        tl.atomic_xchg(arrived + tile, 0)


@triton.jit
def streamed_product(
    y, x, w, locks, M, N, K, STREAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Stream-K: all steps of all tiles are dealt to STREAMS programs; a tile's first program stores, the others add behind a lock."""
    program = tl.program_id(0)
    steps = tl.cdiv(K, BK)
    tiles_n = tl.cdiv(N, BN)
    every = steps * tl.cdiv(M, BM) * tiles_n
    share = tl.cdiv(every, STREAMS)
    at = program * share
    stop = tl.minimum(at + share, every)
    while at < stop:
        tile = at // steps
        end = tl.minimum(stop, (tile + 1) * steps)
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(at, end):
            k = step % steps * BK + tl.arange(0, BK)
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
            total = tl.dot(one, two, total)
        where = y + m[:, None] * N + n[None, :]
        inside = (m[:, None] < M) & (n[None, :] < N)
        if at % steps == 0:
            tl.store(where, total, mask=inside)
        else:
            while tl.atomic_cas(locks + tile, 0, 0) == 0:
                pass
            tl.atomic_add(where, total, mask=inside)
        if tl.atomic_add(locks + tile, end - at) + end - at == steps:
            tl.atomic_xchg(locks + tile, 0)
        at = end


@triton.jit
def streamed_sums(y, x, w, M, N, K, STREAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Stream-K without locks: whole tiles are stored by programs of their own, what is left of all steps is added."""
    program = tl.program_id(0)
    steps = tl.cdiv(K, BK)
    tiles_n = tl.cdiv(N, BN)
    every = steps * tl.cdiv(M, BM) * tiles_n
    begin = program * every // STREAMS
    stop = (program + 1) * every // STREAMS
    while begin < stop:
        tile = begin // steps
        end = min(stop, (tile + 1) * steps)
        m, n = tile // tiles_n * BM + tl.arange(0, BM), tile % tiles_n * BN + tl.arange(0, BN)
        k = (begin - tile * steps) * BK + tl.arange(0, BK)
        x_at, w_at = x + (m % M)[:, None] * K + k[None, :], w + (n % N)[None, :] * K + k[:, None]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(begin, end):
            total += tl.dot(
                tl.load(x_at, mask=k[None, :] < K, other=0.0), tl.load(w_at, mask=k[:, None] < K, other=0.0)
            )
            x_at += BK
            w_at += BK
            k += BK
        tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
        begin = end


@triton.jit
def peeled_product(y, x, w, M, N, K, WHOLE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The loop's steps are whole, without masks along K; what is left of K comes behind it, in a branch (WHOLE) or always."""
    if M * N == 0:
        return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if tl.program_id(0) * BM >= M:
        return
    k = tl.arange(0, BK)
    x_at = x + (m % M)[:, None] * K + k[None, :]
    w_at = w + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    main = K // BK * BK
    for _ in range(0, main, BK):
        total = tl.dot(tl.load(x_at), tl.load(w_at), total)
        x_at += BK
        w_at += BK
    if WHOLE:
        total = tl.dot(
            tl.load(x_at, mask=(main + k)[None, :] < K, other=0.0),
            tl.load(w_at, mask=(main + k)[:, None] < K, other=0.0),
            total,
        )
    elif main < K:
        one = tl.load(x_at, mask=(main + k)[None, :] < K, other=0.0)
        total += tl.dot(one, tl.load(w_at, mask=(main + k)[:, None] < K, other=0.0))
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def numbered_steps(
    y, x, w, M, N, K, steps, share, every, MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] += x [M, K] by w [N, K]: programs take `share` of all `every` steps, numbered through all tiles; pointers move by a step."""
    begin = tl.program_id(0) * share
    last = min(begin + share, every)
    k = tl.arange(0, BK)
    while begin < last:
        end = min(begin + steps - begin % steps, last)
        tile = begin // steps
        m = tile // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
        n = tile % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
        x_at = x + (m % M)[:, None] * K + k[None, :] + BK * (begin % steps)
        w_at = w + n[None, :] * K + k[:, None] + BK * (begin % steps)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(begin, end):
            if MASKED:
                column = step % steps * BK + k
                one = tl.load(x_at, mask=column[None, :] < K, other=0.0)
                two = tl.load(w_at, mask=(column[:, None] < K) & (n < N)[None, :], other=0.0)
            else:
                one = tl.load(x_at)
                two = tl.load(w_at, mask=(n < N)[None, :], other=0.0)
            total = tl.dot(one, two, total)
            x_at += BK
            w_at += BK
        at, inside = y + m[:, None] * N + n[None, :], (m < M)[:, None] & (n < N)[None, :]
        if end % steps == 0 and begin % steps == 0:
            tl.store(at, total, mask=inside)
        else:
            tl.atomic_add(at, total, mask=inside, sem="relaxed")
        begin = end


def _split(draw: Draw, s: Sizes, name: str, **more: object) -> Call:
    """x [M, K] by w [N, K], but for parts that stay apart, where the weight comes first."""
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    y, expected = np.empty((s.m, s.n), np.float32), lambda: x.astype(np.float64) @ w.astype(np.float64).T
    arguments: dict[str, object] = {"x": x, "w": w, "M": s.m, "N": s.n, "K": s.k, **more}
    grid: tuple[int, ...] = s.grid
    tiles = s.flat
    match name:
        case "added":
            factor = draw.rng.uniform(0.5, 2, s.n).astype(np.float32)
            grid = (*s.grid, SPLIT)
            arguments |= {"SPLIT": SPLIT, "factor": factor}
            plain, expected = expected, lambda: plain() * (factor if more["SCALED"] else 1)
        case "apart":
            x, w = draw.dense(s.n, s.k), draw.pruned(s.m, s.k)
            share = -(-s.k // SPLIT // s.BK) * s.BK
            parts = -(-s.k // share)
            grid, y = (tiles, parts), np.empty((parts, s.m, s.n), np.float32)
            arguments |= {"x": x, "w": w, "share": share}

            def expected() -> Array:
                a, b = w.astype(np.float64), x.astype(np.float64).T
                return np.stack([a[:, i : i + share] @ b[i : i + share] for i in range(0, s.k, share)])

        case "last":
            grid, y = (tiles, SPLIT), np.empty((s.m, s.n), np.float16)
            room, arrived = np.full((SPLIT, s.m, s.n), np.nan, np.float32), np.zeros(tiles, np.int32)
            arguments |= {"SPLIT": SPLIT, "room": room, "arrived": arrived}
        case "streams":
            grid = (STREAMS,)
            arguments |= {"STREAMS": STREAMS, "locks": np.zeros(tiles, np.int32)}
            if more.pop("lockless", False):
                del arguments["locks"], arguments["lockless"]
        case "numbered":
            steps = -(-s.k // s.BK)
            grid = (STREAMS,)
            arguments |= {"steps": steps, "every": tiles * steps, "share": -(-tiles * steps // STREAMS)}
        case _:
            y = np.empty((s.m, s.n), np.float16)
    zeroed = name in ("added", "streams", "numbered")
    return Call({"y": y, **arguments}, lambda: {"y": expected()}, grid=grid, zeroed=zeroed)


SMALL = Sizes(150, 200, 336, 64, 64, 64)
LARGE = (Sizes(2048, 2048, 4096, 128, 128, 64), Sizes(2048, 2048, 4096, 64, 64, 64))
FEW = Sizes(16, 2048, 4096, 16, 128, 64)

FORMS = (
    Form(
        "split K in rounds", added_parts, partial(_split, name="added", ROUNDS=True, SCALED=False), SMALL, (*LARGE, FEW)
    ),
    Form(
        "split K, scaled", added_parts, partial(_split, name="added", ROUNDS=False, SCALED=True), SMALL, (*LARGE, FEW)
    ),
    Form("parts of K apart", parts_apart, partial(_split, name="apart"), SMALL, LARGE),
    Form("the last program adds", last_adds, partial(_split, name="last"), SMALL, (*LARGE, FEW)),
    Form("stream-K with locks", streamed_product, partial(_split, name="streams"), SMALL, LARGE),
    Form("stream-K with sums", streamed_sums, partial(_split, name="streams", lockless=True), SMALL, LARGE),
    Form("stream-K by numbers", numbered_steps, partial(_split, name="numbered", MASKED=True), SMALL, LARGE),
    Form(
        "stream-K by numbers, whole steps",
        numbered_steps,
        partial(_split, name="numbered", MASKED=False),
        replace(SMALL, k=320),
        LARGE,
    ),
    Form("a peeled tail", peeled_product, partial(_split, name="peeled", WHOLE=True), SMALL, LARGE),
    Form("a tail in a branch", peeled_product, partial(_split, name="peeled", WHOLE=False), SMALL, LARGE),
)
