"""Kernels that go through K in their own ways: in steps of any length, unrolled, with what is left of K behind the loop."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def joined_entries(a, b, d, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """a [E, M, K] sparse, b [E, N, K] and d [E, M, N] lie without gaps, so that strides are products of sizes."""
    entry = tl.program_id(2)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [E, M, K], [M * K, K, 1], [1, BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [E, N, K], [K * N, K, 1], [1, BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [E, M, N], [M * N, N, 1], [1, BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = a_tiles.load([entry, row, k]).reshape(BM, BK)
        y = b_tiles.load([entry, column, k]).reshape(BN, BK)
        total = tl.dot(x, y.T, total)
    d_tiles.store([entry, row, column], total.to(tl.float16).reshape(1, BM, BN))


@triton.jit
def rest_of_k(a, b, d, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Whole steps in a loop, and one more step where a part of K is left."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    steps = K // BK
    for step in range(steps):
        total += tl.dot(a_tiles.load([row, step * BK]), b_tiles.load([column, step * BK]).T)
    if K % BK > 0:
        total += tl.dot(a_tiles.load([row, steps * BK]), b_tiles.load([column, steps * BK]).T)
    d_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def last_step(x, w, y, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x [M, K], w [N, K] sparse: the last step, which may be a part of one, stands behind the loop."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [stride_x, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w, [N, K], [stride_w, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [stride_y, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    last = (tl.cdiv(K, BK) - 1) * BK
    for k in range(0, last, BK):
        total = tl.dot(x_tiles.load([row, k]), w_tiles.load([column, k]).T, total)
    total = tl.dot(x_tiles.load([row, last]), w_tiles.load([column, last]).T, total)
    y_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def unrolled_k(
    a, b, d, M, N, stride_a, stride_b, stride_d, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """K is a constant, so that there is no loop, and no mask along K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in tl.static_range(0, K, BK):
        ks = first + tl.arange(0, BK)
        x = tl.load(a + rows[:, None] * stride_a + ks[None, :], mask=rows[:, None] < M, other=0.0)
        y = tl.load(b + columns[None, :] * stride_b + ks[:, None], mask=columns[None, :] < N, other=0.0)
        total = tl.dot(x, y, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(d + rows[:, None] * stride_d + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def counted_offsets(
    a, b, d, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The loop counts steps, and the kernel elements of K itself."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    k = 0
    for _ in range(tl.cdiv(K, BK)):
        total = tl.dot(a_tiles.load([row, k]), b_tiles.load([column, k]).T, total)
        k += BK
    d_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def rest_by_pointers(
    a, b, d, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Whole steps without a mask along K, and a masked one where the pointers then are."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + (m % M)[:, None] * stride_a + k[None, :]
    rights = b + k[:, None] * stride_b + (n % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(K // BK):
        total = tl.dot(tl.load(lefts), tl.load(rights), total)
        lefts += BK
        rights += BK * stride_b
    rest = K % BK
    if rest > 0:
        left = tl.load(lefts, mask=k[None, :] < rest, other=0.0)
        right = tl.load(rights, mask=k[:, None] < rest, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(d + m[:, None] * stride_d + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))
