"""Kernels that users write in their first hour: names of any kind, branches around stores, masks without `other`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def foreign_names(
    d, ñ, b, π, a·b, _1, _1_2, WARP_SZ, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    lefts = tl.make_tensor_descriptor(ñ, [M, K], [K, 1], [BM, BK])
    rights = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    outs = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(lefts.load([row, k]), rights.load([column, k]).T, total)
    outs.store([row, column], total * π + a·b * _1 - _1_2 * WARP_SZ)


@triton.jit
def sum_of(a, b, row, column, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    lefts = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    rights = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(lefts.load([row, k]), rights.load([column, k]).T, total)
    return total


@triton.jit
def guarded_store(d, a, b, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    outs = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BM, BN])
    total = sum_of(a, b, row, column, M, N, K, BM, BN, BK)
    if flag > 0:
        outs.store([row, column], total)


@triton.jit
def guarded_twice(d, a, b, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    outs = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BM, BN])
    total = sum_of(a, b, row, column, M, N, K, BM, BN, BK)
    if flag > 0:
        if row > 0:
            outs.store([row, column], total)
        else:
            if flag > 1:
                outs.store([row, column], total)


@triton.jit
def guarded_program(d, a, b, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    if row < M:
        rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
        total = sum_of(a, b, row, column, M, N, K, BM, BN, BK)
        if flag > 0:
            tl.store(d + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def guarded_in_loops(d, a, b, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, first = tl.program_id(0) * BM, tl.program_id(1) * BN
    lefts = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    rights = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    outs = tl.make_tensor_descriptor(d, [M, N], [N, 1], [BM, BN])
    for column in range(first, N, tl.num_programs(1) * BN):
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(lefts.load([row, k]), rights.load([column, k]).T, total)
            if k + BK >= K:  # noqa: SIM102
                if flag > 0:
                    outs.store([row, column], total)


@triton.jit
def guarded_while(d, a, b, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    lefts = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    rights = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    k = 0
    while k < K:
        if flag > 0:
            total = tl.dot(lefts.load([row, k]), rights.load([column, k]).T, total)
        k += BK
    if flag > 0:
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.atomic_add(d + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def pointer_product(d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FILL: tl.constexpr):
    """Masks of K give zeros only where FILL."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        left, right = a + m[:, None] * K + k[None, :], b + n[None, :] * K + k[:, None]
        left_mask, right_mask = (m[:, None] < M) & (k[None, :] < K), (n[None, :] < N) & (k[:, None] < K)
        if FILL:
            x, y = tl.load(left, mask=left_mask, other=0.0), tl.load(right, mask=right_mask, other=0.0)
        else:
            x, y = tl.load(left, mask=left_mask), tl.load(right, mask=right_mask)
        total = tl.dot(x, y, total)
    tl.store(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def right_pointers(d, b, a, N, M, K, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """d [N, M] with a sparse a [M, K] on the right."""
    n, m = tl.program_id(1) * BN + tl.arange(0, BN), tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        x = tl.load(b + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        y = tl.load(a + m[None, :] * K + k[:, None], mask=(m[None, :] < M) & (k[:, None] < K), other=0.0)
        total = tl.dot(x, y, total)
    tl.store(d + n[:, None] * M + m[None, :], total, mask=(n[:, None] < N) & (m[None, :] < M))


@triton.jit
def unmasked_rows(d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total = tl.dot(tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + n[None, :] * K + k[:, None]), total)
    tl.store(d + m[:, None] * N + n[None, :], total)


@triton.jit
def batch_of(d, a, b, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column, entry = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2)
    lefts = tl.make_tensor_descriptor(a, [E, M, K], [M * K, K, 1], [1, BM, BK])
    rights = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    outs = tl.make_tensor_descriptor(d, [E, M, N], [M * N, N, 1], [1, BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = lefts.load([entry, row, k]).reshape(BM, BK)
        total = tl.dot(left, rights.load([column, k]).T, total)
    outs.store([entry, row, column], total.reshape(1, BM, BN))
