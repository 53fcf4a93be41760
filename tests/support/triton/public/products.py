"""Products of two matrices: of Triton's tutorials, FBGEMM, kernl, FlagGems, stream-K and HSTU."""

from __future__ import annotations

from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide
from support.triton.public.common import (
    MODEL,
    SMALL,
    place_by_rest,
    place_in_group,
    product,
    programs,
    sigmoid,
    silu,
    strides_of,
)


@triton.jit
def leaky(value):
    return tl.where(value >= 0, value, 0.01 * value)


@triton.jit
def tutorial_product(
    x, w, y, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Triton's tutorial 03: tiles in groups, rows past the end begin again, what is assumed of strides, a leaky result."""
    tile_m, tile_n = place_in_group(tl.program_id(axis=0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    tl.assume(tile_m >= 0)
    tl.assume(tile_n >= 0)
    tl.assume(stride_xm > 0)
    tl.assume(stride_wk > 0)
    m = (tile_m * BM + tl.arange(0, BM)) % M
    n = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    x_at = x + (m[:, None] * stride_xm + k[None, :] * stride_xk)
    w_at = w + (k[:, None] * stride_wk + n[None, :] * stride_wn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(one, two, total)
        x_at += BK * stride_xk
        w_at += BK * stride_wk
    result = leaky(total).to(y.dtype.element_ty)
    row = tile_m * BM + tl.arange(0, BM)
    column = tile_n * BN + tl.arange(0, BN)
    y_at = y + stride_ym * row[:, None] + stride_yn * column[None, :]
    tl.store(y_at, result, mask=(row[:, None] < M) & (column[None, :] < N))


def _leaky(value: Array) -> Array:
    return np.where(value >= 0, value, 0.01 * value)


@triton.jit
def persistent_product(
    x, w, y, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    GROUP: tl.constexpr, NUM_SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Triton's tutorial 09: programs take tiles in turn in a flattened loop; the tile that is stored is counted apart."""
    start = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    stored = start - NUM_SMS
    inside = tl.arange(0, BK)
    for tile in tl.range(start, tiles_m * tiles_n, NUM_SMS, flatten=True):
        tile_m, tile_n = place_by_rest(tile, tiles_m, tiles_n, GROUP)
        m = tile_m * BM + tl.arange(0, BM)
        n = tile_n * BN + tl.arange(0, BN)
        m = tl.where(m < M, m, 0)
        n = tl.where(n < N, n, 0)
        m = tl.max_contiguous(tl.multiple_of(m, BM), BM)
        n = tl.max_contiguous(tl.multiple_of(n, BN), BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            k = step * BK + tl.arange(0, BK)
            x_at = x + (m[:, None] * stride_xm + k[None, :] * stride_xk)
            w_at = w + (k[:, None] * stride_wk + n[None, :] * stride_wn)
            one = tl.load(x_at, mask=inside[None, :] < K - step * BK, other=0.0)
            two = tl.load(w_at, mask=inside[:, None] < K - step * BK, other=0.0)
            total = tl.dot(one, two, total)
        stored += NUM_SMS
        tile_m, tile_n = place_by_rest(stored, tiles_m, tiles_n, GROUP)
        row = tile_m * BM + tl.arange(0, BM)
        column = tile_n * BN + tl.arange(0, BN)
        y_at = y + stride_ym * row[:, None] + stride_yn * column[None, :]
        tl.store(y_at, total.to(y.dtype.element_ty), mask=(row[:, None] < M) & (column[None, :] < N))


@triton.jit
def described_product(
    x, w, y, M, N, K, NUM_SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Triton's tutorial 09 by descriptors that the kernel makes; the result is stored in two halves."""
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    of_x = tl.make_tensor_descriptor(x, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    of_w = tl.make_tensor_descriptor(w, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    of_y = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN // 2])
    tiles = tl.cdiv(M, BM) * tiles_n
    for tile in tl.range(tl.program_id(0), tiles, NUM_SMS, flatten=True, warp_specialize=False):
        row = tile // tiles_n * BM
        column = tile % tiles_n * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            one = of_x.load([row, step * BK])
            total = tl.dot(one, of_w.load([column, step * BK]).T, total)
        left, right = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
        of_y.store([row, column], left.to(tl.float16))
        of_y.store([row, column + BN // 2], right.to(tl.float16))


@triton.jit
def flat_loop(
    x, w, y, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    NUM_SMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """FBGEMM's persistent product: one loop over tiles and steps, with the step counted by hand."""
    start = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    tiles = tl.cdiv(M, BM) * tiles_n
    mine = tiles // NUM_SMS
    if start < tiles % NUM_SMS:
        mine += 1
    tile = start - NUM_SMS
    step = -1
    m = tl.arange(0, BM)
    n = tl.arange(0, BN)
    tile_m = 0
    tile_n = 0
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(steps * mine):
        step = tl.where(step == steps - 1, 0, step + 1)
        if step == 0:
            tile += NUM_SMS
            tile_m = tile // tiles_n
            tile_n = tile % tiles_n
            m = tile_m * BM + tl.arange(0, BM)
            n = tile_n * BN + tl.arange(0, BN)
            m = tl.where(m < M, m, 0)
            n = tl.where(n < N, n, 0)
        k = step * BK + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * stride_xm + k[None, :] * stride_xk, mask=k[None, :] < K, other=0.0)
        two = tl.load(w + k[:, None] * stride_wk + n[None, :] * stride_wn, mask=k[:, None] < K, other=0.0)
        total = tl.dot(one, two, total)
        if step == steps - 1:
            row = tile_m * BM + tl.arange(0, BM)
            column = tile_n * BN + tl.arange(0, BN)
            y_at = y + row[:, None] * stride_ym + column[None, :] * stride_yn
            tl.store(y_at, total.to(y.dtype.element_ty), mask=(row[:, None] < M) & (column[None, :] < N))
            total = tl.zeros((BM, BN), dtype=tl.float32)


@triton.jit
def kept_before_activation(
    x, w, y, bias, before, M, N, K, stride_xm, stride_wn,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """kernl's linear layer: the bias begins the sum, K counts down, the value before the activation is a second output."""
    tile_m, tile_n = place_by_rest(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    from_n = tl.max_contiguous(tl.multiple_of(n % N, BN), BN)
    from_m = tl.max_contiguous(tl.multiple_of(m % M, BM), BM)
    k = tl.arange(0, BK)
    x_at = x + (from_m[:, None] * stride_xm + k[None, :])
    w_at = w + (k[:, None] + from_n[None, :] * stride_wn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    for left in range(K, 0, -BK):
        one = tl.load(x_at, mask=k[None, :] < left, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < left, other=0.0)
        total += tl.dot(one, two)
        x_at += BK
        w_at += BK
    place = m[:, None] * N + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(before + place, total, mask=inside)
    total = total * tl.sigmoid(1.702 * total)
    tl.store(y + place, total, mask=inside)


def _kept(draw: Draw, s: Sizes) -> Call:
    x, w, bias = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n)

    def expected() -> dict[str, Array]:
        before = wide(x) @ wide(w).T + wide(bias)
        return {"y": before * sigmoid(1.702 * before), "before": before}

    y, before = np.empty((s.m, s.n), np.float16), np.empty((s.m, s.n), np.float16)
    strides = {"stride_xm": s.k, "stride_wn": s.k}
    return Call(
        {"x": x, "w": w, "y": y, "bias": bias, "before": before, "GROUP": 2, **strides},
        expected,
        outputs=("y", "before"),
        grid=(s.flat,),
    )


@triton.jit
def last_step_apart(
    x, w, y, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """FlagGems' product: whole steps without masks by places of 64 bits, then the rest of K with masks."""
    tile_m, tile_n = place_by_rest(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    from_m = tl.max_contiguous(tl.multiple_of(m % M, BM), BM).to(tl.int64)
    from_n = tl.max_contiguous(tl.multiple_of(n % N, BN), BN).to(tl.int64)
    m = m.to(tl.int64)
    n = n.to(tl.int64)
    whole = (tl.cdiv(K, BK) - 1) * BK
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, whole, BK):
        k = (first + tl.arange(0, BK)).to(tl.int64)
        one = tl.load(x + (from_m[:, None] * stride_xm + k[None, :] * stride_xk))
        two = tl.load(w + (k[:, None] * stride_wk + from_n[None, :] * stride_wn))
        total += tl.dot(one, two, out_dtype=tl.float32, allow_tf32=False)
    k = (whole + tl.arange(0, BK)).to(tl.int64)
    inside = k < K
    one = tl.load(x + (from_m[:, None] * stride_xm + k[None, :] * stride_xk), mask=inside[None, :], other=0.0)
    two = tl.load(w + (k[:, None] * stride_wk + from_n[None, :] * stride_wn), mask=inside[:, None], other=0.0)
    total += tl.dot(one, two, out_dtype=tl.float32, allow_tf32=False)
    y_at = y + (m[:, None] * stride_ym + n[None, :] * stride_yn)
    tl.store(y_at, total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def stream_k(
    x, w, y, M, N, K, share, all_steps, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Stream-K: each program takes a share of all steps of all tiles. Whole tiles are stored, parts of tiles are added."""
    program = tl.program_id(0)
    more = all_steps % tl.num_programs(0)
    start = program * share + tl.minimum(program, more)
    last = (program + 1) * share + tl.minimum(program + 1, more)
    steps = tl.cdiv(K, BK)
    tiles_n = tl.cdiv(N, BN)
    while start < last:
        first = start % steps
        end = tl.minimum(start + (steps - first), last)
        tile = start // steps
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        k = tl.arange(0, BK)
        x_at = x + (m[:, None] * stride_xm + k[None, :] * stride_xk) + BK * stride_xk * first
        w_at = w + (k[:, None] * stride_wk + n[None, :] * stride_wn) + BK * stride_wk * first
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(start, end):
            left = K - (step % steps) * BK
            one = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
            two = tl.load(w_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
            total += tl.dot(one, two)
            x_at += BK * stride_xk
            w_at += BK * stride_wk
        y_at = y + m[:, None] * stride_ym + n[None, :] * stride_yn
        inside = (m[:, None] < M) & (n[None, :] < N)
        if first == 0 and end % steps == 0:
            tl.store(y_at, total, mask=inside)
        else:
            tl.atomic_add(y_at, total, mask=inside)
        start = end


def _all_steps(s: Sizes) -> int:
    return s.flat * -(-s.k // s.BK)


def _streams(s: Sizes) -> int:
    return programs(s, few=5)


@triton.jit
def biased_silu(
    x, w, y, bias, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """HSTU's layer: a grid of two axes made flat and grouped, pointers moved by 64-bit products, a bias and silu."""
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tile_m, tile_n = place_by_rest(program, tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    first_m = tile_m.to(tl.int64) * BM
    first_n = tile_n.to(tl.int64) * BN
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    n = tl.arange(0, BN)
    inside_m = (first_m + m)[:, None] < M
    inside_n = (first_n + n)[None, :] < N
    x += first_m * stride_xm
    x_at = x + (m[:, None] * stride_xm + k[None, :] * stride_xk)
    w += first_n * stride_wn
    w_at = w + (k[:, None] * stride_wk + n[None, :] * stride_wn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=(k[None, :] < K - step * BK) & inside_m, other=0.0)
        two = tl.load(w_at, mask=(k[:, None] < K - step * BK) & inside_n, other=0.0)
        total += tl.dot(one, two, allow_tf32=True)
        x_at += BK * stride_xk
        w_at += BK * stride_wk
    added = tl.load(bias + first_n + n[None, :], mask=inside_n, other=0.0)
    value = (total + added.to(tl.float32)).to(tl.float16)
    value = (value * tl.sigmoid(value.to(tl.float32))).to(tl.float16)
    y += first_m * stride_ym
    y += first_n * stride_yn
    tl.store(y + stride_ym * m[:, None] + stride_yn * n[None, :], value, mask=inside_m & inside_n)


def _biased(draw: Draw, s: Sizes) -> Call:
    x, w, bias = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n)
    return Call(
        {"x": x, "w": w, "y": np.empty((s.m, s.n), np.float16), "bias": bias, "GROUP": 4, **strides_of(s)},
        lambda: {"y": silu(wide(x) @ wide(w).T + wide(bias))},
    )


@triton.jit
def branch_at_the_last_step(
    x, w, y, M, N, K, stride_wk, stride_wn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Only the last step masks K, by a branch in the loop; rows past the end become the last one."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    m = tl.where(row < M, row, M - 1)
    n = tl.where(column < N, column, N - 1)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * stride_wn + k[:, None] * stride_wk
    total = tl.zeros((BM, BN), tl.float32)
    steps = tl.cdiv(K, BK)
    for step in range(steps):
        if step < steps - 1:
            one = tl.load(x_at)
            two = tl.load(w_at)
        else:
            one = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
            two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total += tl.dot(one, two)
        x_at += BK
        w_at += BK * stride_wk
    inside = (row[:, None] < M) & (column[None, :] < N)
    tl.store(y + row[:, None] * N + column[None, :], total.to(y.dtype.element_ty), mask=inside)


def _flat_grid(s: Sizes) -> tuple[int, ...]:
    return (s.flat,)


def _program_grid(s: Sizes) -> tuple[int, ...]:
    return (programs(s),)


_grouped = partial(product, grid=_flat_grid, GROUP=2)
_persistent = partial(product, grid=_program_grid, NUM_SMS=programs)
_streamed = partial(
    product,
    out=np.float32,
    grid=lambda s: (_streams(s),),
    zeroed=True,
    share=lambda s: _all_steps(s) // _streams(s),
    all_steps=_all_steps,
)

LARGE = (MODEL,)

FORMS = (
    Form(
        "tutorial product",
        tutorial_product,
        partial(_grouped, after=_leaky),
        SMALL,
        (MODEL, Sizes(256, 4096, 4096, 64, 128, 64)),
    ),
    Form(
        "tutorial product, persistent",
        persistent_product,
        partial(_persistent, columns=True, element="bf16", GROUP=2),
        SMALL,
        LARGE,
    ),
    Form("tutorial product, stored in halves", described_product, partial(_persistent, strides=()), SMALL, LARGE),
    Form("steps counted by hand", flat_loop, _persistent, SMALL, LARGE),
    Form(
        "value before the activation",
        kept_before_activation,
        _kept,
        SMALL,
        (Sizes(2048, 4096, 4096, 128, 128, 64),),
    ),
    Form("last step apart", last_step_apart, partial(_grouped, columns=True), SMALL, LARGE),
    Form("stream-K", stream_k, _streamed, SMALL, LARGE),
    Form("bias and silu", biased_silu, _biased, SMALL, LARGE),
    Form(
        "branch at the last step",
        branch_at_the_last_step,
        partial(product, strides=("stride_wk", "stride_wn")),
        SMALL,
        LARGE,
    ),
)
