"""Weights whose tiles are addressed by plain arithmetic: gathered, paged, wrapped, from tables, in any order of K."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Call, Draw, Form, Sizes, square, wide

PAGE = 16
EXPERTS = 3


@triton.jit
def rows_by(
    y, x, w, table, bounds, M, N, K, rows_held, apart,
    AT: tl.constexpr, PAGE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by rows of w [rows, K]ᵀ. AT says how a program finds the rows and the columns of w.

    "listed": rows named by a table. "paged": pages of PAGE rows named by a table. "begun": rows from a number that was loaded, on. "wrapped": row
    numbers modulo the number of rows. "turned": rows counted from the last one. "flat": one number for row and column,
    divided again. "masked": rows and columns in one mask. "bounded": columns between two numbers that were loaded.
    "backward": steps along K from the last one. "blocks": steps along K named by a table. "pieces": pieces of 16 columns
    named by a table. "far": each row is `apart` rows behind the one before.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row = n
    if AT == "listed":
        row = tl.load(table + n, mask=n < N, other=0)
    elif AT == "paged":
        row = tl.load(table + n // PAGE, mask=n < N, other=0) * PAGE + n % PAGE
    elif AT == "begun":
        row = tl.load(bounds) + n
    elif AT == "wrapped":
        row = tl.max_contiguous(tl.multiple_of((n + apart) % rows_held, BN), BN)
    elif AT == "turned":
        row = rows_held - 1 - n
    elif AT == "far":
        row = n * apart
    first = 0
    last = K
    if AT == "bounded":
        first = tl.load(bounds)
        last = tl.load(bounds + 1)
    steps = tl.cdiv(last - first, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(steps):
        if AT == "backward":
            k = (steps - 1 - step) * BK + tl.arange(0, BK)
        elif AT == "blocks":
            k = tl.load(table + step) * BK + tl.arange(0, BK)
        elif AT == "pieces":
            j = tl.arange(0, BK)
            k = tl.load(table + (step * BK + j) // PAGE, mask=step * BK + j < K, other=0) * PAGE + j % PAGE
        else:
            k = first + step * BK + tl.arange(0, BK)
        inside = k < last
        if AT == "pieces":
            inside = inside & (step * BK + tl.arange(0, BK) < K)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        if AT == "flat":
            flat = n[:, None] * K + k[None, :]
            at = flat // K * K + flat % K
            two = tl.load(w + at, mask=(n < N)[:, None] & inside[None, :], other=0.0)
        elif AT == "wrapped":
            two = tl.load(w + row[:, None] * K + k[None, :], mask=inside[None, :], other=0.0)
        else:
            two = tl.load(w + row[:, None] * K + k[None, :], mask=(n < N)[:, None] & inside[None, :], other=0.0)
        total = tl.dot(one, two.T, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _rows(draw: Draw, s: Sizes, *, at: str, first: int = 0, end: int | None = None, element: str = "f16") -> Call:
    rng, held, apart = draw.rng, s.n + 2 * PAGE, 1
    rows = np.arange(s.n)
    table, bounds = np.zeros(1, np.int32), np.array([first, end or s.k], np.int32)
    if at == "listed":
        table = rng.integers(0, held, s.n).astype(np.int32)
        rows = table
    elif at == "paged":
        table = rng.permutation(held // PAGE)[: -(-s.n // PAGE)].astype(np.int32)
        rows = table[rows // PAGE] * PAGE + rows % PAGE
    elif at == "begun":
        bounds[0] = 5
        rows = rows + 5
    elif at == "wrapped":
        apart = 7
        held = s.n - 3
        rows = (rows + apart) % held
    elif at == "turned":
        rows = held - 1 - rows
    elif at == "far":
        apart = 2
        held = 2 * s.n
        rows = rows * 2
    elif at == "blocks":
        table = rng.permutation(-(-s.k // s.BK)).astype(np.int32)
    elif at == "pieces":
        table = rng.permutation(-(-s.k // PAGE)).astype(np.int32)
    x, w = draw.dense(s.m, s.k, element=element), draw.pruned(held, s.k, element=element)
    low, high = (bounds[0], bounds[1]) if at == "bounded" else (0, s.k)
    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "table": table, "bounds": bounds,
            "rows_held": held, "apart": apart, "AT": at, "PAGE": PAGE,
        },
        lambda: {"y": wide(x)[:, low:high] @ wide(w)[rows][:, low:high].T},
    )  # fmt: skip


@triton.jit
def first_operand(
    y, w, x, table, M, N, K, w_row, x_row,
    AT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = rows of w by x [K, N]. AT: "listed" rows, "spread" steps of K over a second axis of programs, or "unmasked" w."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row = m
    if AT == "listed":
        row = tl.load(table + tl.where(m < M, m, 0))
    k = tl.arange(0, BK)
    w_at = w + row[:, None] * w_row + k[None, :]
    x_at = x + k[:, None] * x_row + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        if AT == "unmasked":
            one = tl.load(w_at, mask=(m < M)[:, None], other=0.0)
        else:
            one = tl.load(w_at, mask=k[None, :] < left, other=0.0)
        two = tl.load(x_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        total += tl.dot(one, two)
        w_at += BK
        x_at += BK * x_row
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _first(draw: Draw, s: Sizes, *, at: str, element: str = "f16") -> Call:
    held = s.m if at == "unmasked" else s.m + s.BM
    table = draw.rng.integers(0, held, s.m).astype(np.int32)
    w, x = draw.pruned(held, s.k, element=element), draw.dense(s.k, s.n, element=element)
    rows = table if at == "listed" else np.arange(s.m)
    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16),
            "w": w,
            "x": x,
            "table": table,
            "w_row": s.k,
            "x_row": s.n,
            "AT": at,
        },
        lambda: {"y": wide(w)[rows] @ wide(x)},
    )


@triton.jit
def columns_by(
    y, x, w, table, M, N, K, AT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by columns of w [K, columns], sparse along K. AT: "plain", "listed" or "wrapped" columns, or pages of
    K ("paged").
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    column = n
    if AT == "listed":
        column = tl.load(table + n, mask=n < N, other=0)
    elif AT == "wrapped":
        column = n % N
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        row = k
        if AT == "paged":
            row = tl.load(table + k // 16, mask=k < K, other=0) * 16 + k % 16
        one = tl.load(x + m[:, None] * K + row[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        if AT == "wrapped":
            two = tl.load(w + row[:, None] * N + column[None, :], mask=(k < K)[:, None], other=0.0)
        else:
            two = tl.load(w + row[:, None] * N + column[None, :], mask=(k < K)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _columns(draw: Draw, s: Sizes, *, at: str) -> Call:
    table = draw.rng.integers(0, s.n, s.n).astype(np.int32)
    columns = table if at == "listed" else np.arange(s.n)
    if at == "paged":
        table = draw.rng.permutation(s.k // 16).astype(np.int32)
    x, w = draw.dense(s.m, s.k), np.ascontiguousarray(draw.pruned(s.n, s.k).T)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "table": table, "AT": at},
        lambda: {"y": wide(x) @ wide(w)[:, columns]},
        axes={"w": -2},
    )


@triton.jit
def described_from(
    y, x, w, starts, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w [rows, K]ᵀ through a descriptor, rows from starts[0] on."""
    first = tl.load(starts)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN
    n = column + tl.arange(0, BN)
    weights = tl.make_tensor_descriptor(w, [first + N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        total = tl.dot(one, weights.load([first + column, start]).T, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _described(draw: Draw, s: Sizes, *, first: int) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n + 2 * first, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "starts": np.array([first], np.int32)},
        lambda: {"y": wide(x) @ wide(w)[first : first + s.n].T},
    )


@triton.jit
def vectors(y, x, w, M, N, K, BK: tl.constexpr):
    """y [N] = w [N, K] times x [K]: a program for each row, which it reads as vectors."""
    n = tl.program_id(0)
    total = tl.zeros((BK,), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + k, mask=k < K, other=0.0).to(tl.float32)
        total += one * tl.load(w + n * K + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(y + n, tl.sum(total, 0).to(y.dtype.element_ty))


def _vectors(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.k), draw.pruned(s.n, s.k)
    return Call(
        {"y": np.empty(s.n, np.float16), "x": x, "w": w},
        lambda: {"y": wide(w) @ wide(x)},
        grid=(s.n,),
        operations=2.0 * s.n * s.k,
    )


@triton.jit
def three_axes(
    y, x, w, M, N, K, TURNED: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K], whose rows are loaded in PARTS along an axis of their own. TURNED: columns come before rows."""
    m, first = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN
    n = first + tl.arange(0, PARTS)[:, None] * (BN // PARTS) + tl.arange(0, BN // PARTS)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        if TURNED:
            at = w + n[:, None, :] * K + k[None, :, None]
            two = tl.load(at, mask=(n < N)[:, None, :] & (k < K)[None, :, None], other=0.0)
            two = tl.permute(two, (0, 2, 1))
        else:
            two = tl.load(
                w + n[:, :, None] * K + k[None, None, :], mask=(n < N)[:, :, None] & (k < K)[None, None, :], other=0.0
            )
        total = tl.dot(one, tl.reshape(two, (BN, BK)).T, total)
    n = first + tl.arange(0, BN)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _three_axes(draw: Draw, s: Sizes, *, turned: bool) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "TURNED": turned, "PARTS": 2},
        lambda: {"y": wide(x) @ wide(w).T},
    )


@triton.jit
def halves(
    y, z, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y and z [M, N] = x [M, K] by the halves of w [2 · N, K]: a branch chooses the base of w and the output."""
    m, tiles, tile = tl.program_id(0) * BM + tl.arange(0, BM), tl.cdiv(N, BN), tl.program_id(1)
    if tile < tiles:
        base = w
        out = y
    else:
        base = w + N * K
        out = z
        tile -= tiles
    n = tile * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        two = tl.load(base + n[None, :] * K + k[:, None], mask=(n < N)[None, :] & (k < K)[:, None], other=0.0)
        total = tl.dot(one, two, total)
    tl.store(
        out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


def _halves(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(2 * s.n, s.k)
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "z": np.empty((s.m, s.n), np.float16), "x": x, "w": w},
        lambda: {"y": wide(x) @ wide(w)[: s.n].T, "z": wide(x) @ wide(w)[s.n :].T},
        outputs=("y", "z"),
        grid=(s.grid[0], 2 * s.grid[1]),
        operations=4.0 * s.m * s.n * s.k,
    )


@triton.jit
def whole_numbers(
    y, x, w, table, scales, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y [M, N] = x [M, K] by rows of w [rows, K] from a list, of 8-bit integers, times a scale a row of w."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    row = tl.load(table + n, mask=n < N, other=0)
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
        two = tl.load(w + row[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0)
        total = tl.dot(one, two.T, total, out_dtype=tl.int32)
    scaled = total.to(tl.float32) * tl.load(scales + row)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], scaled.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


def _whole_numbers(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k, element="s8"), draw.pruned(s.n, s.k, element="s8")
    table, scales = (
        draw.rng.integers(0, s.n, s.n).astype(np.int32),
        draw.rng.uniform(0.001, 0.01, s.n).astype(np.float32),
    )
    return Call(
        {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "table": table, "scales": scales},
        lambda: {"y": wide(x) @ wide(w)[table].T * scales[table]},
    )


SMALL = Sizes(40, 56, 144, 32, 32, 64)


def _form(name: str, kernel: Any, build: Any, small: Sizes = SMALL, **kept: Any) -> Form:
    return Form(name, kernel, build, small, square(2048, (128, 128, 64)), **kept)


FORMS: tuple[Form, ...] = (
    *(
        _form(f"rows {at}", rows_by, partial(_rows, at=at))
        for at in (
            "listed",
            "paged",
            "begun",
            "wrapped",
            "turned",
            "flat",
            "masked",
            "backward",
            "blocks",
            "pieces",
            "far",
        )
    ),
    _form("columns bounded", rows_by, partial(_rows, at="bounded", first=32, end=128)),
    _form("columns bounded at pieces", rows_by, partial(_rows, at="bounded", first=16, end=100)),
    _form("rows listed, long rows", rows_by, partial(_rows, at="listed"), Sizes(24, 40, 200, 16, 32, 64)),
    _form("rows listed, few of them", rows_by, partial(_rows, at="listed"), Sizes(24, 20, 144, 16, 16, 64)),
    _form("rows listed, e4m3", rows_by, partial(_rows, at="listed", element="e4m3"), Sizes(40, 56, 320, 32, 32, 128)),
    _form("rows listed, bf16", rows_by, partial(_rows, at="listed", element="bf16"), tolerance=2.0**-5),
    *(_form(f"first operand {at}", first_operand, partial(_first, at=at)) for at in ("listed", "masked", "unmasked")),
    _form(
        "first operand listed, warpgroups",
        first_operand,
        partial(_first, at="listed"),
        Sizes(140, 40, 144, 128, 32, 64),
    ),
    *(_form(f"columns {at}", columns_by, partial(_columns, at=at)) for at in ("plain", "listed", "wrapped", "paged")),
    _form("descriptor from a loaded row", described_from, partial(_described, first=5)),
    Form("rows as vectors", vectors, _vectors, Sizes(1, 40, 600, 1, 1, 256), (Sizes(1, 4096, 4096, 1, 1, 1024),)),
    _form("rows of three axes", three_axes, partial(_three_axes, turned=False)),
    _form("rows of three axes, turned", three_axes, partial(_three_axes, turned=True)),
    _form("halves by a branch", halves, _halves),
    _form("rows listed, 8-bit integers", whole_numbers, _whole_numbers, Sizes(40, 56, 320, 32, 32, 64)),
)
