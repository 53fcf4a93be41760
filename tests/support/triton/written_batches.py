"""Kernels in the styles that people write them in: parts of K, batches, experts."""

import triton
import triton.language as tl


@triton.jit
def split_by_steps(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    part = tl.program_id(1)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    width = GROUP * tiles_n
    group = program // width
    rows = min(tiles_m - group * GROUP, GROUP)
    tile_m = group * GROUP + (program % rows)
    tile_n = (program % width) // rows
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    m_read = tl.max_contiguous(tl.multiple_of(m % M, BM), BM)
    n_read = tl.max_contiguous(tl.multiple_of(n % N, BN), BN)
    k = part * BK + tl.arange(0, BK)
    lefts = a + (m_read[:, None] * stride_am + k[None, :] * stride_ak)
    rights = b + (k[:, None] * stride_bk + n_read[None, :] * stride_bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * SPLIT)):
        left_over = K - step * (BK * SPLIT)
        left = tl.load(lefts, mask=k[None, :] < left_over, other=0.0)
        right = tl.load(rights, mask=k[:, None] < left_over, other=0.0)
        total += tl.dot(left, right)
        lefts += BK * SPLIT * stride_ak
        rights += BK * SPLIT * stride_bk
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    outs = c + (m[:, None] * stride_cm + n[None, :] * stride_cn)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.atomic_add(outs, total, mask=inside)


@triton.jit
def split_by_chunks(
    c, a, b, M, N, K, stride_am, stride_bk, stride_cm, CHUNK, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    start = part * CHUNK
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(start, min(start + CHUNK, K), BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.atomic_add(c + m[:, None] * stride_cm + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def split_unmasked(
    a, b, c, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    program, part = tl.program_id(0), tl.program_id(1)
    tiles_n = tl.cdiv(N, BN)
    tile_m, tile_n = program // tiles_n, program % tiles_n
    m_read = tl.max_contiguous(tl.multiple_of((tile_m * BM + tl.arange(0, BM)) % M, BM), BM)
    n_read = tl.max_contiguous(tl.multiple_of((tile_n * BN + tl.arange(0, BN)) % N, BN), BN)
    k = part * BK + tl.arange(0, BK)
    a = a + (m_read[:, None] * stride_am + k[None, :])
    b = b + (k[:, None] * stride_bk + n_read[None, :])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(K, 0, -BK * SPLIT):
        if EVEN_K:
            left = tl.load(a)
            right = tl.load(b)
        else:
            left = tl.load(a, mask=k[None, :] < first, other=0.0)
            right = tl.load(b, mask=k[:, None] < first, other=0.0)
        total += tl.dot(left, right)
        a += BK * SPLIT
        b += BK * SPLIT * stride_bk
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    c = c + (m[:, None] * stride_cm + n[None, :])
    inside = (m < M)[:, None] & (n < N)[None, :]
    if SPLIT == 1:
        tl.store(c, total, mask=inside)
    else:
        tl.atomic_add(c, total, mask=inside)


@triton.jit
def batch_by_pointers(
    a, b, c, M, N, K, stride_a, stride_am, stride_ak, stride_b, stride_bk, stride_bn, stride_c, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(2)
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + entry * stride_a + m[:, None] * stride_am + k[None, :] * stride_ak
    rights = b + entry * stride_b + k[:, None] * stride_bk + n[None, :] * stride_bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(lefts, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(rights, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right)
        lefts += BK * stride_ak
        rights += BK * stride_bk
    outs = c + entry * stride_c + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(outs, total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def batch_of_moved_pointers(
    a, b, c, M, N, K, stride_a, stride_am, stride_b, stride_bk, stride_c, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(2).to(tl.int64)
    a += entry * stride_a
    b += entry * stride_b
    c += entry * stride_c
    m = (tl.program_id(0) * BM + tl.arange(0, BM)) % M
    n = (tl.program_id(1) * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    lefts = a + m[:, None] * stride_am + k[None, :]
    rights = b + k[:, None] * stride_bk + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(lefts, mask=k[None, :] < K - step * BK, other=0.0)
        right = tl.load(rights, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        lefts += BK
        rights += BK * stride_bk
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def batch_by_blocks(
    a, b, c, M, N, K, stride_a, stride_am, stride_b, stride_bk, stride_c, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(2)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    lefts = tl.make_block_ptr(a + entry * stride_a, (M, K), (stride_am, 1), (row, 0), (BM, BK), (1, 0))
    rights = tl.make_block_ptr(b + entry * stride_b, (K, N), (stride_bk, 1), (0, column), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(lefts, boundary_check=(0, 1)), tl.load(rights, boundary_check=(0, 1)), total)
        lefts = tl.advance(lefts, (0, BK))
        rights = tl.advance(rights, (BK, 0))
    outs = tl.make_block_ptr(c + entry * stride_c, (M, N), (stride_cm, 1), (row, column), (BM, BN), (1, 0))
    tl.store(outs, total.to(c.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def batch_by_descriptors(
    a, b, c, M, N, K, stride_a, stride_am, stride_b, stride_bn, stride_c, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    entry = tl.program_id(2)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a + entry * stride_a, [M, K], [stride_am, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b + entry * stride_b, [N, K], [stride_bn, 1], [BN, BK])
    c_tiles = tl.make_tensor_descriptor(c + entry * stride_c, [M, N], [stride_cm, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, first]), b_tiles.load([column, first]).T, total)
    c_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def batch_in_descriptors(a, b, c, ENTRIES, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    entry = tl.program_id(2)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [ENTRIES, M, K], [M * K, K, 1], [1, BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [ENTRIES, N, K], [N * K, K, 1], [1, BN, BK])
    c_tiles = tl.make_tensor_descriptor(c, [ENTRIES, M, N], [M * N, N, 1], [1, BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = a_tiles.load([entry, row, first]).reshape(BM, BK)
        right = b_tiles.load([entry, column, first]).reshape(BN, BK)
        total = tl.dot(left, right.T, total)
    c_tiles.store([entry, row, column], total.to(tl.float16).reshape(1, BM, BN))


@triton.jit
def batch_in_one_axis(
    a, b, c, ENTRIES, M, N, K, stride_a, stride_am, stride_b, stride_bk, stride_c, stride_cm,
    LAST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """LAST: matrices are counted last, else first."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    entry = program // (tiles_m * tiles_n) if LAST else program % ENTRIES
    tile = program % (tiles_m * tiles_n) if LAST else program // ENTRIES
    tile_m, tile_n = tile // tiles_n, tile % tiles_n
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(
            a + entry * stride_a + m[:, None] * stride_am + k[None, :],
            mask=(m < M)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        right = tl.load(
            b + entry * stride_b + k[:, None] * stride_bk + n[None, :],
            mask=(k < K)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total)
    tl.store(
        c + entry * stride_c + m[:, None] * stride_cm + n[None, :],
        total.to(tl.float16),
        mask=(m < M)[:, None] & (n < N)[None, :],
    )


@triton.jit
def batch_in_turn(
    a, b, c, ENTRIES, M, N, K, stride_a, stride_am, stride_b, stride_bn, stride_c, stride_cm,
    PROGRAMS: tl.constexpr, LAST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """LAST: matrices are counted last, else first."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    each = tiles_m * tiles_n
    for program in range(tl.program_id(0), ENTRIES * each, PROGRAMS):
        entry = program // each if LAST else program % ENTRIES
        tile = program % each if LAST else program // ENTRIES
        row, column = (tile // tiles_n) * BM, (tile % tiles_n) * BN
        a_tiles = tl.make_tensor_descriptor(a + entry * stride_a, [M, K], [stride_am, 1], [BM, BK])
        b_tiles = tl.make_tensor_descriptor(b + entry * stride_b, [N, K], [stride_bn, 1], [BN, BK])
        c_tiles = tl.make_tensor_descriptor(c + entry * stride_c, [M, N], [stride_cm, 1], [BM, BN])
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            total = tl.dot(a_tiles.load([row, first]), b_tiles.load([column, first]).T, total)
        c_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def batch_in_turn_by_descriptors(
    a, b, c, ENTRIES, M, N, K, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    a_tiles = tl.make_tensor_descriptor(a, [ENTRIES, M, K], [M * K, K, 1], [1, BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [ENTRIES, N, K], [N * K, K, 1], [1, BN, BK])
    c_tiles = tl.make_tensor_descriptor(c, [ENTRIES, M, N], [M * N, N, 1], [1, BM, BN])
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for program in range(tl.program_id(0), ENTRIES * tiles_m * tiles_n, PROGRAMS):
        entry = program // (tiles_m * tiles_n)
        row, column = (program // tiles_n) % tiles_m * BM, program % tiles_n * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            left = a_tiles.load([entry, row, first]).reshape(BM, BK)
            right = b_tiles.load([entry, column, first]).reshape(BN, BK)
            total = tl.dot(left, right.T, total)
        c_tiles.store([entry, row, column], total.to(tl.float16).reshape(1, BM, BN))


@triton.jit
def matrix_as_batch(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The only matrix of each batch."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [1, M, K], [M * K, K, 1], [1, BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [1, N, K], [N * K, K, 1], [1, BN, BK])
    c_tiles = tl.make_tensor_descriptor(c, [1, M, N], [M * N, N, 1], [1, BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = a_tiles.load([0, row, first]).reshape(BM, BK)
        right = b_tiles.load([0, column, first]).reshape(BN, BK)
        total = tl.dot(left, right.T, total)
    c_tiles.store([0, row, column], total.to(tl.float16).reshape(1, BM, BN))


@triton.jit
def batch_of_whole_tiles(
    a, b, c, K, N, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    entry = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + entry * stride_a + m[:, None] * K + k[None, :]
    rights = b + entry * stride_b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total += tl.dot(tl.load(lefts), tl.load(rights))
        lefts += BK
        rights += BK * N
    tl.store(c + entry * stride_c + m[:, None] * N + n[None, :], total.to(tl.float16))


@triton.jit
def shared_weight(x, w, bias, y, M, N, K, batch_x, batch_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_m, tile_n, entry = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    x += entry * batch_x
    y += entry * batch_y
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x_tile = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w_tile = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        total = tl.dot(x_tile, w_tile.T, total)
    total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def batch_with_bias(x, w, bias, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_m, tile_n, entry = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x_tile = tl.load(
            x + entry * M * K + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0
        )
        w_tile = tl.load(
            w + entry * N * K + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0
        )
        total = tl.dot(x_tile, w_tile.T, total)
    total += tl.load(bias + entry * N + n, mask=n < N, other=0.0)[None, :]
    tl.store(
        y + entry * M * N + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :]
    )


@triton.jit
def experts_by_pointers(
    x, w, y, experts, M, N, K, stride_x, stride_expert, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    expert = tl.load(experts + tile_m)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    xs = x + m[:, None] * stride_x + k[None, :]
    ws = w + expert * stride_expert + n[None, :] * stride_w + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        x_tile = tl.load(xs, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        w_tile = tl.load(ws, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total += tl.dot(x_tile, w_tile)
        xs += BK
        ws += BK
    tl.store(
        y + m[:, None] * stride_y + n[None, :], total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def experts_by_descriptors(x, w, y, experts, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    expert = tl.load(experts + tile_m).to(tl.int64)
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w + expert * N * K, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(x_tiles.load([tile_m * BM, first]), w_tiles.load([tile_n * BN, first]).T, total)
    y_tiles.store([tile_m * BM, tile_n * BN], total.to(tl.float16))


@triton.jit
def sum_of_experts(x, w, y, ENTRIES, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for expert in range(ENTRIES):
        xs = x + m[:, None] * K + k[None, :]
        ws = w + expert * N * K + n[None, :] * K + k[:, None]
        product = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            x_tile = tl.load(xs, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
            w_tile = tl.load(ws, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
            product += tl.dot(x_tile, w_tile)
            xs += BK
            ws += BK
        total += product * (expert + 1).to(tl.float32)
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
