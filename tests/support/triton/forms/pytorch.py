"""Kernels in the style of the templates by which PyTorch's compiler writes products: sizes are constants, stores number elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, square
from support.triton.forms.tutorials import LARGE, SMALL, persistent_grid, product, programs, wide


@triton.jit
def mm(
    a, b, bias, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, sam: tl.constexpr, sak: tl.constexpr, sbk: tl.constexpr,
    sbn: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """`mm`, and `addmm` where `BIAS`: a row for all rows of the result."""
    if M * N == 0:
        return
    pid = tl.program_id(0).to(tl.int64)
    grid_m = (M + BM - 1) // BM
    grid_n = (N + BN - 1) // BN
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // (group_size)
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    if ((sam == 1 and sak == M) or (sam == K and sak == 1)) and (M >= BM and K > 1):
        offs_a_m = tl.max_contiguous(tl.multiple_of(rm % M, BM), BM)
    else:
        offs_a_m = rm % M
    if ((sbk == 1 and sbn == K) or (sbk == N and sbn == 1)) and (N >= BN and K > 1):
        offs_b_n = tl.max_contiguous(tl.multiple_of(rn % N, BN), BN)
    else:
        offs_b_n = rn % N
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k_idx in range(tl.cdiv(K, BK)):
        if not EVEN_K:
            a_mask = offs_k[None, :] < (K - k_idx * BK)
            b_mask = offs_k[:, None] < (K - k_idx * BK)
        a_k_idx_vals = offs_k[None, :] + (k_idx * BK)
        b_k_idx_vals = offs_k[:, None] + (k_idx * BK)
        a_ptrs = a + (offs_a_m[:, None] * sam + a_k_idx_vals * sak)
        b_ptrs = b + (b_k_idx_vals * sbk + offs_b_n[None, :] * sbn)
        if EVEN_K:
            left = tl.load(a_ptrs)
            right = tl.load(b_ptrs)
        else:
            left = tl.load(a_ptrs, mask=a_mask, other=0.0)
            right = tl.load(b_ptrs, mask=b_mask, other=0.0)
        acc += tl.dot(left, right, allow_tf32=False, out_dtype=tl.float32)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    idx_m = rm[:, None]
    idx_n = rn[None, :]
    mask = (idx_m < M) & (idx_n < N)
    xindex = idx_n + N * idx_m
    if BIAS:
        tmp0 = tl.load(bias + (tl.broadcast_to(idx_n, [BM, BN])), mask, eviction_policy="evict_last").to(tl.float32)
        acc = acc + tmp0
    tl.store(c + (tl.broadcast_to(xindex, [BM, BN])), acc.to(tl.float16), mask)


@triton.jit
def bmm(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, sak: tl.constexpr, sam: tl.constexpr, sbk: tl.constexpr,
    sbn: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """`bmm`: the second axis of the grid counts matrices."""
    pid = tl.program_id(0)
    grid_m = (M + BM - 1) // BM
    grid_n = (N + BN - 1) // BN
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // (group_size)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BM), BM) if M >= BM else rm % M
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BN), BN) if N >= BN else rn % N
    rk = tl.arange(0, BK)
    idx_q = tl.program_id(1)
    a_at = a + (ram[:, None] * sam + rk[None, :] * sak + idx_q * (M * K))
    b_at = b + (rk[:, None] * sbk + rbn[None, :] * sbn + idx_q * (N * K))
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(K, 0, -BK):
        left = tl.load(a_at, mask=rk[None, :] < k, other=0.0)
        right = tl.load(b_at, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(left, right, allow_tf32=False)
        a_at += BK * sak
        b_at += BK * sbk
    idx_q = tl.program_id(1)
    idx_m = (pid_m * BM + tl.arange(0, BM))[:, None]
    idx_n = (pid_n * BN + tl.arange(0, BN))[None, :]
    mask = (idx_m < M) & (idx_n < N)
    xindex = idx_n + N * idx_m + M * N * idx_q
    tl.store(c + (tl.broadcast_to(xindex, [BM, BN])), acc.to(tl.float16), mask)


@triton.jit
def mm_plus_mm(
    a, b, d, e, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, K2: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`mm + mm`: a [M, K] times b [K, N], and d [M, K2] times e [K2, N], in one sum."""
    pid = tl.program_id(0)
    pid_n = pid % ((N + BN - 1) // BN)
    pid_m = pid // ((N + BN - 1) // BN)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    ram = rm % M
    rbn = rn % N
    rk = tl.arange(0, BK)
    a_at = a + (ram[:, None] * K + rk[None, :])
    b_at = b + (rk[:, None] * N + rbn[None, :])
    d_at = d + (ram[:, None] * K2 + rk[None, :])
    e_at = e + (rk[:, None] * N + rbn[None, :])
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k1 in range(K, 0, -BK):
        left = tl.load(a_at, mask=rk[None, :] < k1, other=0.0)
        right = tl.load(b_at, mask=rk[:, None] < k1, other=0.0)
        acc += tl.dot(left, right)
        a_at += BK
        b_at += BK * N
    for k2 in range(K2, 0, -BK):
        left = tl.load(d_at, mask=rk[None, :] < k2, other=0.0)
        right = tl.load(e_at, mask=rk[:, None] < k2, other=0.0)
        acc += tl.dot(left, right)
        d_at += BK
        e_at += BK * N
    idx_m = rm[:, None]
    idx_n = rn[None, :]
    tl.store(c + (idx_n + N * idx_m), acc.to(tl.float16), (idx_m < M) & (idx_n < N))


@triton.jit
def persistent_descriptors(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    """`mm` by descriptors and persistent programs; rows of the sparse operand lie side by side, those of the other too."""
    if M * N == 0:
        return
    start_pid = tl.program_id(0)
    grid_m = tl.cdiv(M, BM)
    grid_n = tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = grid_m * grid_n
    width = GROUP_M * grid_n
    a_desc = tl.make_tensor_descriptor(base=a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(base=b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        group_id = tile_id // width
        first_m = group_id * GROUP_M
        group_size = min(grid_m - first_m, GROUP_M)
        pid_m = first_m + ((tile_id % width) % group_size)
        pid_n = (tile_id % width) // group_size
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            left = tl.load_tensor_descriptor(a_desc, [pid_m * BM, ki * BK])
            right = tl.load_tensor_descriptor(b_desc, [pid_n * BN, ki * BK])
            accumulator += tl.dot(left, right.T, allow_tf32=False)
        rm = pid_m * BM + tl.arange(0, BM)
        rn = pid_n * BN + tl.arange(0, BN)
        idx_m = rm[:, None]
        idx_n = rn[None, :]
        mask = (idx_m < M) & (idx_n < N)
        tl.store(c + (tl.broadcast_to(idx_n + N * idx_m, [BM, BN])), accumulator.to(tl.float16), mask)


@triton.jit
def flattened(
    a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    """The same with one loop over the steps of all tiles of a program."""
    start_pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = tl.cdiv(M, BM) * grid_n
    tiles_per_SM = num_tiles // NUM_SMS
    if start_pid < num_tiles % NUM_SMS:
        tiles_per_SM += 1
    tile_id = start_pid - NUM_SMS
    ki = -1
    pid_m = 0
    pid_n = 0
    rm = tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(k_tiles * tiles_per_SM):
        ki = tl.where(ki == k_tiles - 1, 0, ki + 1)
        if ki == 0:
            tile_id += NUM_SMS
            pid_m = tile_id // grid_n
            pid_n = tile_id % grid_n
        at = ki * BK + rk
        left = tl.load(
            a + (pid_m * BM + rm)[:, None] * K + at[None, :],
            mask=(pid_m * BM + rm < M)[:, None] & (at < K)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + (pid_n * BN + rn)[None, :] * K + at[:, None],
            mask=(pid_n * BN + rn < N)[None, :] & (at < K)[:, None],
            other=0.0,
        )
        acc += tl.dot(left, right)
        if ki == k_tiles - 1:
            idx_m = (pid_m * BM + rm)[:, None]
            idx_n = (pid_n * BN + rn)[None, :]
            tl.store(c + (idx_n + N * idx_m), acc.to(tl.float16), (idx_m < M) & (idx_n < N))
            acc = tl.zeros((BM, BN), dtype=tl.float32)


@triton.jit
def grouped_mm(
    a, b, c, offsets, G: tl.constexpr, N: tl.constexpr, K: tl.constexpr, NUM_SMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """`grouped_mm`: offsets [G] say where each group of rows ends."""
    tidx = tl.program_id(0)
    iterated_tiles = 0
    m_end_offset = 0
    for g in tl.range(G):
        m_start_offset = m_end_offset
        m_end_offset = tl.load(offsets + g)
        m_size = m_end_offset - m_start_offset
        if m_size > 0:
            num_m_tiles = tl.cdiv(m_size, BM)
            num_n_tiles = tl.cdiv(N, BN)
            num_tiles = num_m_tiles * num_n_tiles
            while tidx >= iterated_tiles and tidx < iterated_tiles + num_tiles:
                gidx = tidx - iterated_tiles
                tile_m_idx = gidx % num_m_tiles
                tile_n_idx = gidx // num_m_tiles
                accumulator = tl.zeros((BM, BN), dtype=tl.float32)
                offs_am = tile_m_idx * BM + tl.arange(0, BM)
                offs_bn = tile_n_idx * BN + tl.arange(0, BN)
                for k_block_offset in range(0, K, BK):
                    at = k_block_offset + tl.arange(0, BK)
                    left = tl.load(
                        a + (m_start_offset + offs_am[:, None]) * K + at[None, :],
                        mask=(offs_am[:, None] < m_size) & (at[None, :] < K), other=0.0,
                    )  # fmt: skip
                    right = tl.load(
                        b + g * (N * K) + offs_bn[:, None] * K + at[None, :],
                        mask=(offs_bn[:, None] < N) & (at[None, :] < K), other=0.0,
                    )  # fmt: skip
                    accumulator += tl.dot(left, right.T)
                c_ptr = c + (m_start_offset + offs_am[:, None]) * N + offs_bn[None, :]
                tl.store(c_ptr, accumulator.to(tl.float16), mask=(offs_am[:, None] < m_size) & (offs_bn[None, :] < N))
                tidx += NUM_SMS
            iterated_tiles += num_tiles


@triton.jit
def unmasked(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Sizes that are multiples of the tile, so that nothing masks them."""
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        right = tl.load(b + rn[None, :] * K + (k + rk)[:, None])
        acc += tl.dot(left, right)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))


def _mm(draw: Draw, s: Sizes, *, right: bool, addmm: bool = False) -> Call:
    bias = draw.dense(s.n)
    after = (lambda made: made + wide(bias)) if addmm else None
    made = product(draw, s, right=right, after=after, bias=bias, EVEN_K=s.k % s.BK == 0, BIAS=addmm)
    return _without(made, "scm", "scn")


def _without(call: Call, *names: str) -> Call:
    from dataclasses import replace

    return replace(call, arguments={name: value for name, value in call.arguments.items() if name not in names})


def _bmm(draw: Draw, s: Sizes, *, right: bool) -> Call:
    count = 3 if s.m < 1024 else 8
    a = draw.dense(count, s.m, s.k) if right else draw.pruned(count, s.m, s.k)
    b = draw.pruned(count, s.n, s.k) if right else draw.dense(count, s.k, s.n)

    def multiply(a: Any, b: Any) -> Any:
        return a @ (b.swapaxes(1, 2) if right else b)

    return Call(
        {
            "a": a, "b": b, "c": np.empty((count, s.m, s.n), np.float16), "sam": s.k, "sak": 1,
            "sbk": 1 if right else s.n, "sbn": s.k if right else 1,
        },
        lambda: {"c": multiply(wide(a), wide(b))},
        outputs=("c",),
        sparse=("b",) if right else ("a",),
        grid=(s.flat, count),
        operations=2.0 * count * s.m * s.n * s.k,
        library=lambda given: multiply(given["a"], given["b"]),
    )  # fmt: skip


def _mm_plus_mm(draw: Draw, s: Sizes, *, both: bool) -> Call:
    second = s.k // 2
    a, b = draw.pruned(s.m, s.k), draw.dense(s.k, s.n)
    d, e = draw.pruned(s.m, second) if both else draw.dense(s.m, second), draw.dense(second, s.n)
    return Call(
        {"a": a, "b": b, "d": d, "e": e, "c": np.empty((s.m, s.n), np.float16), "K2": second},
        lambda: {"c": wide(a) @ wide(b) + wide(d) @ wide(e)},
        outputs=("c",),
        sparse=("a", "d") if both else ("a",),
        grid=(s.flat,),
        operations=2.0 * s.m * s.n * (s.k + second),
    )  # fmt: skip


def _grouped_mm(draw: Draw, s: Sizes) -> Call:
    offsets = np.array([s.m // 7, s.m // 7, s.m // 2, s.m], np.int32)
    count = len(offsets)
    a, b = draw.dense(s.m, s.k), draw.pruned(count, s.n, s.k)

    def expected() -> dict[str, Array]:
        parts = np.split(wide(a), offsets[:-1])
        return {"c": np.concatenate([rows @ wide(each).T for rows, each in zip(parts, b, strict=True)])}

    return Call(
        {
            "a": a, "b": b, "c": np.empty((s.m, s.n), np.float16), "offsets": offsets, "G": count,
            "NUM_SMS": programs(s),
        },
        expected,
        outputs=("c",),
        sparse=("b",),
        grid=(programs(s),),
    )  # fmt: skip


_persistent = partial(product, strides=False, grid=persistent_grid, NUM_SMS=programs)
TURNS = {"GROUP_M": 8}
WHOLE = Sizes(128, 64, 192, 64, 64, 64)
SQUARE = square(4096, (128, 128, 64), (64, 64, 64))

FORMS = (
    Form("mm, sparse left", mm, partial(_mm, right=False), SMALL, LARGE, constants=TURNS),
    Form("mm, sparse right", mm, partial(_mm, right=True), SMALL, LARGE, constants=TURNS),
    Form("mm of whole steps", mm, partial(_mm, right=True), Sizes(150, 104, 192, 64, 64, 64), LARGE, constants=TURNS),
    Form("addmm, sparse left", mm, partial(_mm, right=False, addmm=True), SMALL, LARGE, constants=TURNS),
    Form("addmm, sparse right", mm, partial(_mm, right=True, addmm=True), SMALL, LARGE, constants=TURNS),
    Form(
        "bmm, sparse left",
        bmm,
        partial(_bmm, right=False),
        SMALL,
        square(2048, (128, 128, 64), (64, 64, 64)),
        constants=TURNS,
    ),
    Form(
        "bmm, sparse right",
        bmm,
        partial(_bmm, right=True),
        SMALL,
        square(2048, (128, 128, 64), (64, 64, 64)),
        constants=TURNS,
    ),
    Form("mm + mm, one sparse", mm_plus_mm, partial(_mm_plus_mm, both=False), SMALL, SQUARE),
    Form("mm + mm, both sparse", mm_plus_mm, partial(_mm_plus_mm, both=True), SMALL, SQUARE),
    Form(
        "mm by descriptors, sparse left",
        persistent_descriptors,
        partial(_persistent, right=False),
        SMALL,
        LARGE,
        constants=TURNS,
    ),
    Form(
        "mm by descriptors, sparse right",
        persistent_descriptors,
        partial(_persistent, right=True),
        SMALL,
        LARGE,
        constants=TURNS,
    ),
    Form("one loop over tiles and steps", flattened, partial(_persistent, right=True), SMALL, SQUARE),
    Form("grouped mm", grouped_mm, _grouped_mm, SMALL, SQUARE, kind="experts"),
    Form(
        "unmasked, sparse left",
        unmasked,
        partial(product, strides=False, right=False, grid=lambda s: s.grid),
        WHOLE,
        LARGE,
    ),
    Form(
        "unmasked, sparse right",
        unmasked,
        partial(product, strides=False, right=True, grid=lambda s: s.grid),
        WHOLE,
        LARGE,
    ),
)
