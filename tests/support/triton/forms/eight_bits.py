"""Products of 8-bit floats and integers: promoted sums, scales of rows, of blocks along K, and of the whole."""

from __future__ import annotations

from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes

BLOCK = 128


@triton.jit
def promoted_product(
    x, w, y, M, N, K, PROMOTED: tl.constexpr, WEIGHT_FIRST: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K]; sums are promoted to f32 after PROMOTED columns, 0 leaves it to the unit.

    WEIGHT_FIRST: the weight is x, else w.
    """
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K
        one = tl.load(x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        two = tl.load(w + n[None, :] * K + (first + k)[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        if PROMOTED:
            total = tl.dot(one, two, total, max_num_imprecise_acc=PROMOTED)
        else:
            total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


def _promoted(
    draw: Draw, s: Sizes, *, promoted: int = 0, first: bool = False, kinds: tuple[str, str] = ("e4m3", "e4m3")
) -> Call:
    makers = (draw.pruned, draw.dense) if first else (draw.dense, draw.pruned)
    x, w = makers[0](s.m, s.k, element=kinds[0]), makers[1](s.n, s.k, element=kinds[1])
    return Call(
        {"y": draw.dense(s.m, s.n, element="bf16"), "x": x, "w": w, "PROMOTED": promoted, "WEIGHT_FIRST": first},
        lambda: {"y": x.astype(np.float64) @ w.astype(np.float64).T},
        sparse=("x",) if first else ("w",),
    )  # fmt: skip


@triton.jit
def block_scaled_product(
    x, w, y, x_scale, w_scale, M, N, K, xs_row, ws_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K]; x has a scale for 128 columns, w one for 128 × 128. A step is BK = 128 columns."""
    m = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    n = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    xs_at = x_scale + m * xs_row
    ws_at = w_scale + n // GROUP * ws_row
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        by_x, by_w = tl.load(xs_at), tl.load(ws_at)
        total += tl.dot(one, two) * by_x[:, None] * by_w[None, :]
        x_at += BK
        w_at += BK
        xs_at += 1
        ws_at += 1
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def block_scaled_weight_first(
    y, w, x, w_scale, x_scale, M, N, K, ws_row, xs_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """y [M, N] = w [M, K] by x [N, K]: the blocks' scale is one number of a tile, and indexed by the step."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    m, n, k = row + tl.arange(0, BM), column + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        at = first + k
        one = tl.load(w + m[:, None] * K + at[None, :], mask=(m < M)[:, None] & (at < K)[None, :], other=0.0)
        two = tl.load(x + n[:, None] * K + at[None, :], mask=(n < N)[:, None] & (at < K)[None, :], other=0.0)
        by_w = tl.load(w_scale + row // GROUP * ws_row + first // BK)
        by_x = tl.load(x_scale + n * xs_row + first // BK, mask=n < N, other=0.0)
        part = tl.dot(one, two.T, out_dtype=tl.float32)
        total += part * (by_w * by_x)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.bfloat16), mask=(m < M)[:, None] & (n < N)[None, :])


def _scales(draw: Draw, *shape: int) -> Array:
    """Blocks that differ by a thousand: a scale that is taken from another block is noticed."""
    return draw.rng.choice([1e-3, 1.0, 30.0], shape).astype(np.float32)


def _spread(scale: Array, rows: int, columns: int, by: tuple[int, int]) -> Array:
    return scale.astype(np.float64).repeat(by[0], 0)[:rows].repeat(by[1], 1)[:, :columns]


def _blocks(draw: Draw, s: Sizes, *, first: bool = False) -> Call:
    pruned, dense = (s.m, s.n) if first else (s.n, s.m)
    w, x = draw.pruned(pruned, s.k, element="e4m3"), draw.dense(dense, s.k, element="e4m3")
    steps = -(-s.k // BLOCK)
    w_scale, x_scale = _scales(draw, -(-pruned // BLOCK), steps), _scales(draw, dense, steps)

    def expected() -> dict[str, Array]:
        wide = w.astype(np.float64) * _spread(w_scale, pruned, s.k, (BLOCK, BLOCK))
        rows = x.astype(np.float64) * _spread(x_scale, dense, s.k, (1, BLOCK))
        return {"y": wide @ rows.T if first else rows @ wide.T}

    return Call(
        {
            "y": draw.dense(s.m, s.n, element="bf16"), "x": x, "w": w, "x_scale": x_scale, "w_scale": w_scale,
            "xs_row": steps, "ws_row": steps, "GROUP": BLOCK,
        },
        expected,
    )  # fmt: skip


@triton.jit
def scaled_behind(
    x, w, y, x_scale, w_scale, M, N, K, x_row, w_row, y_row, SUMS: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K], a scale for each row of both; tiles in groups of GROUP rows."""
    program = tl.program_id(0)
    tiles_m, tiles_n = (M + BM - 1) // BM, (N + BN - 1) // BN
    width = GROUP * tiles_n
    group = program // width
    high = min(tiles_m - group * GROUP, GROUP)
    tile_m, tile_n = group * GROUP + program % high, program % width // high
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    one_row = tl.max_contiguous(tl.multiple_of(m % M, BM), BM)
    two_row = tl.max_contiguous(tl.multiple_of(n % N, BN), BN)
    k = tl.arange(0, BK)
    x_at = x + (one_row[:, None] * x_row + k[None, :])
    w_at = w + (k[:, None] + two_row[None, :] * w_row)
    total = tl.zeros((BM, BN), dtype=SUMS)
    for left in range(K, 0, -BK):
        one = tl.load(x_at, mask=k[None, :] < left, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < left, other=0.0)
        total += tl.dot(one, two, out_dtype=SUMS)
        x_at += BK
        w_at += BK
    row, column = m[:, None], n[None, :]
    inside = (row < M) & (column < N)
    of_x = tl.load(x_scale + row, mask=row < M)
    of_w = tl.load(w_scale + column, mask=column < N)
    tl.store(y + (row * y_row + column), (total * of_x * of_w).to(y.dtype.element_ty), mask=inside)


@triton.jit
def integer_sums(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] in s32 = w [M, K] by x [N, K]."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for first in range(0, K, BK):
        one = tl.load(
            w + m[:, None] * K + (first + k)[None, :], mask=(m[:, None] < M) & (first + k[None, :] < K), other=0.0
        )
        two = tl.load(
            x + n[:, None] * K + (first + k)[None, :], mask=(n[:, None] < N) & (first + k[None, :] < K), other=0.0
        )
        total += tl.dot(one, tl.trans(two))
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


def _integers(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k, element="s8"), draw.dense(s.n, s.k, element="s8")
    return Call(
        {"y": np.empty((s.m, s.n), np.int32), "x": x, "w": w},
        lambda: {"y": w.astype(np.float64) @ x.astype(np.float64).T},
        grid=s.grid[::-1],
    )


def _behind(draw: Draw, s: Sizes, *, element: str) -> Call:
    x, w = draw.dense(s.m, s.k, element=element), draw.pruned(s.n, s.k, element=element)
    of_x, of_w = (draw.rng.uniform(0.01, 0.1, size).astype(np.float32) for size in (s.m, s.n))
    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "x_scale": of_x, "w_scale": of_w, "x_row": s.k,
            "w_row": s.k, "y_row": s.n, "SUMS": tl.int32 if element == "s8" else tl.float32, "GROUP": 4,
        },
        lambda: {"y": (x.astype(np.float64) @ w.astype(np.float64).T) * of_x[:, None] * of_w},
        grid=(s.flat,),
    )  # fmt: skip


SMALL = Sizes(150, 136, 400, 64, 64, 128)
LARGE = (Sizes(4096, 4096, 4096, 128, 128, 128), Sizes(4096, 4096, 4096, 64, 64, 128))
FLOATS, SCALES = "8-bit floats", "block scales"

FORMS = (
    Form("8-bit floats", promoted_product, _promoted, SMALL, LARGE, FLOATS),
    Form("8-bit floats, weight first", promoted_product, partial(_promoted, first=True), SMALL, LARGE, FLOATS),
    Form("8-bit floats, promoted", promoted_product, partial(_promoted, promoted=128), SMALL, LARGE, FLOATS),
    Form(
        "8-bit floats, promoted each 32",
        promoted_product,
        partial(_promoted, promoted=32, first=True),
        SMALL,
        LARGE,
        FLOATS,
    ),
    Form(
        "8-bit floats of two types", promoted_product, partial(_promoted, kinds=("e5m2", "e4m3")), SMALL, LARGE, FLOATS
    ),
    Form("block scales", block_scaled_product, _blocks, SMALL, LARGE, SCALES),
    Form("block scales, weight first", block_scaled_weight_first, partial(_blocks, first=True), SMALL, LARGE, SCALES),
    Form("row scales, 8-bit floats", scaled_behind, partial(_behind, element="e4m3"), SMALL, LARGE, FLOATS),
    Form("row scales, 8-bit integers", scaled_behind, partial(_behind, element="s8"), SMALL, LARGE),
    Form("8-bit integers", integer_sums, _integers, SMALL, LARGE),
)
