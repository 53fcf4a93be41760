"""Kernels in the style of Triton's tutorials: grouped order, persistent programs, descriptors, attention, groups, rows normalized."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, square, wide


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def place_of(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """The tile's row and column, `GROUP` rows of tiles at a time."""
    width = GROUP * tl.cdiv(N, BN)
    first = (tile // width) * GROUP
    rows = min(tl.cdiv(M, BM) - first, GROUP)
    return first + (tile % rows), (tile % width) // rows


@triton.jit
def grouped_order(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Rows and columns that wrap, and an activation (tutorial 03)."""
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BM)
    num_pid_n = tl.cdiv(N, BN)
    in_group = GROUP * num_pid_n
    first_pid_m = (pid // in_group) * GROUP
    group_size = min(num_pid_m - first_pid_m, GROUP)
    pid_m = first_pid_m + ((pid % in_group) % group_size)
    pid_n = (pid % in_group) // group_size
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    tl.assume(sam > 0)
    tl.assume(sbn > 0)
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a + (offs_am[:, None] * sam + offs_k[None, :] * sak)
    b_ptrs = b + (offs_k[:, None] * sbk + offs_bn[None, :] * sbn)
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        accumulator = tl.dot(left, right, accumulator)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    if ACTIVATION == "leaky":
        accumulator = leaky(accumulator)
    out = accumulator.to(tl.float16)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c + scm * offs_cm[:, None] + scn * offs_cn[None, :]
    tl.store(c_ptrs, out, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def naive(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Rows past the end become the first one (tutorial 09)."""
    pid_m, pid_n = place_of(tl.program_id(0), M, N, BM, BN, GROUP)
    offs_am = pid_m * BM + tl.arange(0, BM)
    offs_bn = pid_n * BN + tl.arange(0, BN)
    offs_am = tl.where(offs_am < M, offs_am, 0)
    offs_bn = tl.where(offs_bn < N, offs_bn, 0)
    offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BM), BM)
    offs_bn = tl.max_contiguous(tl.multiple_of(offs_bn, BN), BN)
    offs_k = tl.arange(0, BK)
    a_ptrs = a + (offs_am[:, None] * sam + offs_k[None, :] * sak)
    b_ptrs = b + (offs_k[:, None] * sbk + offs_bn[None, :] * sbn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        right = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        total = tl.dot(left, right, total)
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c + scm * offs_cm[:, None] + scn * offs_cn[None, :]
    tl.store(c_ptrs, total.to(tl.float16), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def persistent(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    """A program takes tiles in turn and counts those that it stores apart (tutorial 09)."""
    start_pid = tl.program_id(axis=0)
    k_tiles = tl.cdiv(K, BK)
    num_tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    tile_id_c = start_pid - NUM_SMS
    offs_k_for_mask = tl.arange(0, BK)
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = place_of(tile_id, M, N, BM, BN, GROUP)
        start_m = pid_m * BM
        start_n = pid_n * BN
        offs_am = start_m + tl.arange(0, BM)
        offs_bn = start_n + tl.arange(0, BN)
        offs_am = tl.where(offs_am < M, offs_am, 0)
        offs_bn = tl.where(offs_bn < N, offs_bn, 0)
        offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BM), BM)
        offs_bn = tl.max_contiguous(tl.multiple_of(offs_bn, BN), BN)
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BK + tl.arange(0, BK)
            a_ptrs = a + (offs_am[:, None] * sam + offs_k[None, :] * sak)
            b_ptrs = b + (offs_k[:, None] * sbk + offs_bn[None, :] * sbn)
            left = tl.load(a_ptrs, mask=offs_k_for_mask[None, :] < K - ki * BK, other=0.0)
            right = tl.load(b_ptrs, mask=offs_k_for_mask[:, None] < K - ki * BK, other=0.0)
            accumulator = tl.dot(left, right, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = place_of(tile_id_c, M, N, BM, BN, GROUP)
        offs_cm = pid_m * BM + tl.arange(0, BM)
        offs_cn = pid_n * BN + tl.arange(0, BN)
        c_ptrs = c + scm * offs_cm[:, None] + scn * offs_cn[None, :]
        tl.store(c_ptrs, accumulator.to(tl.float16), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def by_host_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """c [M, N] = a [M, K] times b [N, K], transposed (tutorial 09)."""
    pid_m, pid_n = place_of(tl.program_id(0), M, N, BM, BN, GROUP)
    offs_am = pid_m * BM
    offs_bn = pid_n * BN
    offs_k = 0
    accumulator = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        left = a.load([offs_am, offs_k])
        right = b.load([offs_bn, offs_k])
        accumulator = tl.dot(left, right.T, accumulator)
        offs_k += BK
    c.store([offs_am, offs_bn], accumulator.to(tl.float16))


@triton.jit
def persistent_by_host_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, NUM_SMS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """The same by persistent programs; the tile is stored in halves where `HALVES` (tutorial 09)."""
    start_pid = tl.program_id(axis=0)
    num_tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    k_tiles = tl.cdiv(K, BK)
    tile_id_c = start_pid - NUM_SMS
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = place_of(tile_id, M, N, BM, BN, GROUP)
        offs_am = pid_m * BM
        offs_bn = pid_n * BN
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BK
            left = a.load([offs_am, offs_k])
            right = b.load([offs_bn, offs_k])
            accumulator = tl.dot(left, right.T, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = place_of(tile_id_c, M, N, BM, BN, GROUP)
        offs_am_c = pid_m * BM
        offs_bn_c = pid_n * BN
        if HALVES:
            acc = tl.reshape(accumulator, (BM, 2, BN // 2))
            acc = tl.permute(acc, (0, 2, 1))
            acc0, acc1 = tl.split(acc)
            c.store([offs_am_c, offs_bn_c], acc0.to(tl.float16))
            c.store([offs_am_c, offs_bn_c + BN // 2], acc1.to(tl.float16))
        else:
            c.store([offs_am_c, offs_bn_c], accumulator.to(tl.float16))


@triton.jit
def persistent_by_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, NUM_SMS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    """The same by descriptors that the kernel makes (tutorial 09)."""
    a_desc = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    c_desc = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, BN if not HALVES else BN // 2])
    start_pid = tl.program_id(axis=0)
    num_tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    tile_id_c = start_pid - NUM_SMS
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        pid_m, pid_n = place_of(tile_id, M, N, BM, BN, GROUP)
        accumulator = tl.zeros((BM, BN), dtype=tl.float32)
        for ki in range(tl.cdiv(K, BK)):
            left = a_desc.load([pid_m * BM, ki * BK])
            right = b_desc.load([pid_n * BN, ki * BK])
            accumulator = tl.dot(left, right.T, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = place_of(tile_id_c, M, N, BM, BN, GROUP)
        offs_cm = pid_m * BM
        offs_cn = pid_n * BN
        if HALVES:
            acc = tl.permute(tl.reshape(accumulator, (BM, 2, BN // 2)), (0, 2, 1))
            acc0, acc1 = tl.split(acc)
            c_desc.store([offs_cm, offs_cn], acc0.to(tl.float16))
            c_desc.store([offs_cm, offs_cn + BN // 2], acc1.to(tl.float16))
        else:
            c_desc.store([offs_cm, offs_cn], accumulator.to(tl.float16))


@triton.jit
def sizes_of_its_own(a, b, c, M, N, K, rows, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A descriptor of `rows` rows beside N columns of the result, which masks know."""
    b_desc = tl.make_tensor_descriptor(b, shape=[rows, K], strides=[K, 1], block_shape=[BN, BK])
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(
            a + m[:, None] * K + (first + k)[None, :], mask=(m[:, None] < M) & (first + k < K)[None, :], other=0.0
        )
        total = tl.dot(left, b_desc.load([tl.program_id(1) * BN, first]).T, total)
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def projected_attention(
    x,
    w,
    k,
    v,
    out,
    scale,
    T,
    D,
    H: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    HEAD: tl.constexpr,
):
    """Attention (tutorial 06) of queries that the kernel projects: x [T, D] times w [H·HEAD, D], transposed."""
    start, head = tl.program_id(0), tl.program_id(1)
    rows = start * BM + tl.arange(0, BM)
    columns = tl.arange(0, HEAD)
    inner = tl.arange(0, BK)
    q = tl.zeros((BM, HEAD), dtype=tl.float32)
    w_at = w + (head * HEAD + columns)[None, :] * D + inner[:, None]
    for first in range(0, D, BK):
        left = tl.load(
            x + rows[:, None] * D + (first + inner)[None, :],
            mask=(rows < T)[:, None] & (first + inner < D)[None, :],
            other=0.0,
        )
        right = tl.load(w_at, mask=(first + inner < D)[:, None], other=0.0)
        q = tl.dot(left, right, q)
        w_at += BK
    qk_scale = scale * 1.44269504
    q = (q * qk_scale).to(tl.float16)
    m_i = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l_i = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, HEAD), dtype=tl.float32)
    base = head * T * HEAD
    for at in range(0, T, BN):
        keys = at + tl.arange(0, BN)
        key = tl.load(k + base + keys[None, :] * HEAD + columns[:, None], mask=(keys < T)[None, :], other=0.0)
        qk = tl.dot(q, key)
        qk = tl.where((keys < T)[None, :], qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_ij[:, None])
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        value = tl.load(v + base + keys[:, None] * HEAD + columns[None, :], mask=(keys < T)[:, None], other=0.0)
        acc = tl.dot(p.to(tl.float16), value, acc)
        m_i = m_ij
    acc = acc / l_i[:, None]
    tl.store(out + base + rows[:, None] * HEAD + columns[None, :], acc.to(tl.float16), mask=(rows < T)[:, None])


@triton.jit
def groups(
    a, w, c, starts, N, K, COUNT: tl.constexpr, NUM_SMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Products of groups of rows, each with a matrix of its own; programs walk over the tiles of all (tutorial 08)."""
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    for g in range(COUNT):
        begin = tl.load(starts + g)
        gm = tl.load(starts + g + 1) - begin
        num_m_tiles = tl.cdiv(gm, BM)
        num_n_tiles = tl.cdiv(N, BN)
        num_tiles = num_m_tiles * num_n_tiles
        while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            in_gemm = tile_idx - last_problem_end
            offs_am = (in_gemm // num_n_tiles) * BM + tl.arange(0, BM)
            offs_bn = (in_gemm % num_n_tiles) * BN + tl.arange(0, BN)
            offs_k = tl.arange(0, BK)
            a_ptrs = a + (begin + offs_am[:, None]) * K + offs_k[None, :]
            w_ptrs = w + g * N * K + offs_bn[None, :] * K + offs_k[:, None]
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for kk in range(tl.cdiv(K, BK)):
                left = tl.load(a_ptrs, mask=(offs_am < gm)[:, None] & (offs_k < K - kk * BK)[None, :], other=0.0)
                right = tl.load(w_ptrs, mask=(offs_bn < N)[None, :] & (offs_k < K - kk * BK)[:, None], other=0.0)
                total += tl.dot(left, right)
                a_ptrs += BK
                w_ptrs += BK
            c_ptrs = c + (begin + offs_am[:, None]) * N + offs_bn[None, :]
            tl.store(c_ptrs, total.to(tl.float16), mask=(offs_am < gm)[:, None] & (offs_bn < N)[None, :])
            tile_idx += NUM_SMS
        last_problem_end = last_problem_end + num_tiles


@triton.jit
def normalized_rows(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SOFTMAX: tl.constexpr,
):  # fmt: skip
    """A layer whose rows, of one tile, become softmax (tutorial 02) or are normalized (tutorial 05)."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        at = first + k
        left = tl.load(a + m[:, None] * sam + at[None, :] * sak, mask=(m < M)[:, None] & (at < K)[None, :], other=0.0)
        right = tl.load(b + at[:, None] * sbk + n[None, :] * sbn, mask=(at < K)[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    if SOFTMAX:
        row = tl.where((n < N)[None, :], total, -float("inf"))
        row = row - tl.max(row, axis=1)[:, None]
        top = tl.exp(row)
        out = top / tl.sum(top, axis=1)[:, None]
    else:
        mean = tl.sum(total, axis=1) / N
        away = tl.where((n < N)[None, :], total - mean[:, None], 0.0)
        var = tl.sum(away * away, axis=1) / N
        out = away * (1 / tl.sqrt(var + 1e-5))[:, None]
    tl.store(c + m[:, None] * scm + n[None, :] * scn, out.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


def programs(s: Sizes) -> int:
    """Of a persistent kernel: an H200's SMs, or so few that each takes several tiles."""
    return 132 if s.m * s.n > 2**20 else 2


def product(
    draw: Draw, s: Sizes, *, right: bool, strides: bool = True, after: Any = None, grid: Any = None, **more: Any
) -> Call:
    """c [M, N] of a [M, K] and b: [K, N] beside a sparse `a`, [N, K] where `b` is sparse.

    strides: the kernel takes them; else b is [N, K] always. after: what the kernel does to the product. more: other arguments.
    """
    a = draw.dense(s.m, s.k) if right else draw.pruned(s.m, s.k)
    by_rows = right or not strides
    b = draw.pruned(s.n, s.k) if right else draw.dense(*((s.n, s.k) if by_rows else (s.k, s.n)))
    c = np.empty((s.m, s.n), np.float16)
    more = {name: value(s) if callable(value) else value for name, value in more.items()}
    if strides:
        names = ("sam", "sak", "sbk", "sbn", "scm", "scn")
        more |= dict(zip(names, (s.k, 1, *((1, s.k) if by_rows else (s.n, 1)), s.n, 1), strict=True))

    def expected() -> dict[str, Array]:
        made = wide(a) @ (wide(b).T if by_rows else wide(b))
        return {"c": made if after is None else after(made)}

    def library(given: Any) -> Any:
        left, other = (getattr(given[name], "base", given[name]) for name in "ab")
        return left @ (other.T if by_rows else other)

    return Call(
        {"c": c, "a": a, "b": b, **more},
        expected,
        outputs=("c",),
        sparse=("b",) if right else ("a",),
        grid=(s.flat,) if grid is None else grid(s),
        library=library,
    )


def by_host(draw: Draw, s: Sizes, *, halves: bool = False, **options: Any) -> Call:
    """The same with descriptors that the host makes."""
    from dataclasses import replace

    made = product(draw, s, strides=False, **options)
    return replace(made, blocks={"a": (s.BM, s.BK), "b": (s.BN, s.BK), "c": (s.BM, s.BN // 2 if halves else s.BN)})


def persistent_grid(s: Sizes) -> tuple[int, ...]:
    return (min(programs(s), s.flat),)


def _attention(draw: Draw, s: Sizes) -> Call:
    """m tokens of k numbers, n numbers a head."""
    heads = 2 if s.m < 1024 else 16
    x, w = draw.dense(s.m, s.k), draw.pruned(heads * s.n, s.k)
    k, v = draw.dense(heads, s.m, s.n), draw.dense(heads, s.m, s.n)
    scale = 0.5 / float(s.n * s.k) ** 0.5

    def expected() -> dict[str, Array]:
        q = (wide(x) @ wide(w).T * scale).reshape(s.m, heads, s.n).transpose(1, 0, 2)
        p = np.exp(q @ wide(k).transpose(0, 2, 1))
        return {"out": p / p.sum(axis=2, keepdims=True) @ wide(v)}

    return Call(
        {
            "x": x, "w": w, "k": k, "v": v, "out": np.empty_like(k), "scale": scale, "T": s.m, "D": s.k, "H": heads,
            "HEAD": s.n,
        },
        expected,
        outputs=("out",),
        grid=(-(-s.m // s.BM), heads),
        operations=2.0 * heads * s.m * s.n * (s.k + 2 * s.m),
    )  # fmt: skip


def _groups(draw: Draw, s: Sizes) -> Call:
    count = 3
    starts = np.array([0, s.m // 5, s.m // 5, s.m], np.int32)
    a, w = draw.dense(s.m, s.k), draw.pruned(count, s.n, s.k)

    def expected() -> dict[str, Array]:
        parts = [wide(a[begin:end]) @ wide(each).T for begin, end, each in zip(starts, starts[1:], w, strict=False)]
        return {"c": np.concatenate(parts)}

    return Call(
        {
            "a": a, "w": w, "c": np.empty((s.m, s.n), np.float16), "starts": starts, "COUNT": count,
            "NUM_SMS": programs(s),
        },
        expected,
        outputs=("c",),
        grid=(programs(s),),
    )  # fmt: skip


def _softmax(product: Array) -> Array:
    top = np.exp(product - product.max(axis=1, keepdims=True))
    return top / top.sum(axis=1, keepdims=True)


def _norm(product: Array) -> Array:
    away = product - product.mean(axis=1, keepdims=True)
    return away / np.sqrt((away**2).mean(axis=1, keepdims=True) + 1e-5)


SMALL = Sizes(150, 104, 136, 64, 64, 64)
LARGE = square(4096, (128, 256, 64), (64, 64, 64))
ROWS = tuple(Sizes(8192, tile[1], 4096, *tile) for tile in ((128, 128, 64), (64, 64, 64)))
"""Layers whose rows are one tile each."""


def _sides(
    name: str, kernel: Any, build: Any, small: Sizes = SMALL, large: tuple[Sizes, ...] = LARGE, **more: Any
) -> list[Form]:
    """The sparse operand on the left, and on the right."""
    sides = {"sparse left": False, "sparse right": True}
    return [
        Form(f"{name}, {side}", kernel, partial(build, right=right), small, large, **more)
        for side, right in sides.items()
    ]


TURNS = {"GROUP": 8}
_leaky = partial(product, after=lambda made: np.where(made >= 0, made, 0.01 * made))
_persistent = partial(product, grid=persistent_grid, NUM_SMS=programs)
_host_persistent = partial(by_host, grid=persistent_grid, NUM_SMS=programs)
_own_descriptors = partial(product, strides=False, grid=persistent_grid, NUM_SMS=programs)
_row_grid = partial(product, grid=lambda s: (s.grid[0],))

FORMS = (
    *_sides("grouped order", grouped_order, _leaky, constants={**TURNS, "ACTIVATION": "leaky"}),
    *_sides("naive product", naive, product, constants=TURNS),
    *_sides("persistent", persistent, _persistent, constants=TURNS),
    *_sides("host descriptors", by_host_descriptors, by_host, constants=TURNS),
    *_sides(
        "persistent host descriptors",
        persistent_by_host_descriptors,
        _host_persistent,
        constants={**TURNS, "HALVES": False},
    ),
    *_sides(
        "halves by host descriptors",
        persistent_by_host_descriptors,
        partial(_host_persistent, halves=True),
        constants={**TURNS, "HALVES": True},
    ),
    *_sides(
        "persistent descriptors", persistent_by_descriptors, _own_descriptors, constants={**TURNS, "HALVES": False}
    ),
    *_sides("halves by descriptors", persistent_by_descriptors, _own_descriptors, constants={**TURNS, "HALVES": True}),
    *_sides(
        "sizes of its own", sizes_of_its_own, partial(product, strides=False, grid=lambda s: s.grid, rows=lambda s: s.n)
    ),
    Form(
        "projected attention",
        projected_attention,
        _attention,
        Sizes(72, 32, 72, 64, 32, 32),
        (Sizes(2048, 128, 2048, 128, 64, 64), Sizes(2048, 64, 1024, 64, 64, 64)),
        kind="attention",
    ),
    Form("groups of rows", groups, _groups, SMALL, square(4096, (128, 128, 64), (64, 64, 64)), kind="experts"),
    *_sides(
        "layer with softmax",
        normalized_rows,
        partial(_row_grid, after=_softmax),
        Sizes(70, 56, 136, 64, 64, 64),
        ROWS,
        constants={"SOFTMAX": True},
        tolerance=2.0**-6,
    ),
    *_sides(
        "layer normalized",
        normalized_rows,
        partial(_row_grid, after=_norm),
        Sizes(70, 56, 136, 64, 64, 64),
        ROWS,
        constants={"SOFTMAX": False},
    ),
)
