"""Loops whose tiles bulk copies bring, in kernels that are no product: each stores the largest sum of a row beside the sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes


@triton.jit
def finish(y, most, total, first, columns, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Store a tile and the largest sum of each of its rows, a column of `most` [cdiv(N, BN), M] for each tile."""
    m, n = first + tl.arange(0, BM), columns + tl.arange(0, BN)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=inside)
    largest = tl.max(tl.where(n[None, :] < N, total, -float("inf")), axis=1)
    tl.store(most + (columns // BN) * M + m, largest, mask=m < M)


@triton.jit
def described(y, most, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Both operands by descriptors that the kernel makes, x as [N, K]."""
    first, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(x, [N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([first, k]), right.load([columns, k]).T, total)
    finish(y, most, total, first, columns, M, N, BM, BN)


@triton.jit
def handed(y, most, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Both operands by descriptors that the caller makes, x as [K, N]."""
    first, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        total = tl.dot(w.load([first, step * BK]), x.load([step * BK, columns]), total)
    finish(y, most, total, first, columns, M, N, BM, BN)


@triton.jit
def pointed(y, most, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Both operands by pointers that the loop moves; rows of x wrap."""
    first, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    m, n, k = first + tl.arange(0, BM), (columns + tl.arange(0, BN)) % N, tl.arange(0, BK)
    w_at, x_at = w + m[:, None] * K + k[None, :], x + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(x_at, mask=k[:, None] < K - step * BK, other=0.0)
        total += tl.dot(left, right)
        w_at += BK
        x_at += BK
    # The part that wraps is in columns of its own, and in the largest of a row unless it is left out.
    finish(y, most, total, first, columns, M, N, BM, BN)


@triton.jit
def gathered(y, most, w, x, rows, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of x by their numbers, which no box describes, beside tiles of w."""
    first, columns = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    n, k = columns + tl.arange(0, BN), tl.arange(0, BK)
    row = tl.load(rows + n, mask=n < N, other=0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inside = (n[None, :] < N) & (start + k[:, None] < K)
        right = tl.load(x + row[None, :] * K + start + k[:, None], mask=inside, other=0.0)
        total = tl.dot(left.load([first, start]), right, total)
    finish(y, most, total, first, columns, M, N, BM, BN)


@triton.jit
def persistent(y, most, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Each program goes from tile to tile."""
    left = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(x, [N, K], [K, 1], [BN, BK])
    along = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * along, tl.num_programs(0)):
        first, columns = tile // along * BM, tile % along * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(left.load([first, k]), right.load([columns, k]).T, total)
        finish(y, most, total, first, columns, M, N, BM, BN)


def _expected(w: Array, x: Array, tile: int) -> dict[str, Array]:
    y = w.astype(np.float64) @ x.astype(np.float64)
    starts = range(0, y.shape[1], tile)
    return {"y": y, "most": np.stack([y[:, each : each + tile].max(axis=1) for each in starts])}


def _call(draw: Draw, s: Sizes, *, turned: bool, described: bool = False, programs: int | None = None) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16),
            "most": np.empty((-(-s.n // s.BN), s.m), np.float32),
            "w": w,
            "x": np.ascontiguousarray(x.T) if turned else x,
        },
        lambda: _expected(w, x, s.BN),
        outputs=("y", "most"),
        grid=() if programs is None else (programs,),
        blocks={"w": (s.BM, s.BK), "x": (s.BK, s.BN)} if described else {},
    )


def _turned(draw: Draw, s: Sizes) -> Call:
    return _call(draw, s, turned=True)


def _handed(draw: Draw, s: Sizes) -> Call:
    return _call(draw, s, turned=False, described=True)


def _persistent(draw: Draw, s: Sizes) -> Call:
    # Fewer than there are tiles.
    tiles = s.flat
    return _call(draw, s, turned=True, programs=min(132, tiles - 1))


def _gathered(draw: Draw, s: Sizes) -> Call:
    call = _call(draw, s, turned=True)
    x, rows = call.arguments["x"], draw.rng.integers(0, s.n, s.n, np.int32)
    w = call.arguments["w"]
    return replace(call, arguments={**call.arguments, "rows": rows}, expected=lambda: _expected(w, x[rows].T, s.BN))


LARGE = (
    Sizes(4096, 4096, 4096, 128, 256, 64),
    Sizes(4096, 4096, 4096, 128, 128, 64),
    Sizes(4096, 4096, 4096, 64, 64, 64),
)
SMALL = Sizes(200, 112, 272, 128, 64, 64)

FORMS = (
    Form("described tiles", described, _turned, SMALL, LARGE),
    Form("handed descriptors", handed, _handed, SMALL, LARGE),
    Form("handed descriptors of odd rows", handed, _handed, Sizes(200, 108, 272, 128, 64, 64), LARGE),
    Form("pointed tiles", pointed, _turned, SMALL, LARGE),
    Form("gathered beside tiles", gathered, _gathered, SMALL, LARGE),
    Form("persistent tiles", persistent, _persistent, SMALL, LARGE),
)
