"""Layers as users write them in Triton: activations [M, K] times sparse weights [N, K], transposed; and kernels of other shapes."""

import triton
import triton.language as tl


@triton.jit
def weight_descriptors(
    y, x, w, bias, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [stride_x, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w, [N, K], [stride_w, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [stride_y, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(x_tiles.load([row, k]), w_tiles.load([column, k]).T, total)
    n = column + tl.arange(0, BN)
    total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    y_tiles.store([row, column], tl.maximum(total, 0.0).to(tl.float16))


@triton.jit
def weight_pointers(
    x, w, y, M, N, K, stride_x, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    of_group = GROUP * tiles_n
    first_m = (program // of_group) * GROUP
    rows = min(tiles_m - first_m, GROUP)
    tile_m = first_m + (program % of_group) % rows
    tile_n = (program % of_group) // rows
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    m_read = tl.max_contiguous(tl.multiple_of(m % M, BM), BM)
    xs = x + m_read[:, None] * stride_x + k[None, :]
    ws = w + n[None, :] * stride_w + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(xs, mask=(k[None, :] + first < K), other=0.0)
        right = tl.load(ws, mask=(n[None, :] < N) & ((k[:, None] + first < K) & (n[None, :] >= 0)), other=0.0)
        total += tl.dot(left, right)
        xs += BK
        ws += BK
    tl.store(y + m[:, None] * stride_y + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def weight_blocks(y, x, w, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    left = tl.make_block_ptr(x, (M, K), (stride_x, 1), (row, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(w, (K, N), (1, stride_w), (0, column), (BK, BN), (0, 1))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total += tl.dot(tl.load(left, boundary_check=(0, 1)), tl.load(right, boundary_check=(0, 1)))
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
    out = tl.make_block_ptr(y, (M, N), (stride_y, 1), (row, column), (BM, BN), (1, 0))
    tl.store(out, total.to(tl.float16), boundary_check=(0, 1))


@triton.jit
def gated_layer(
    y, x, gate, up, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [stride_x, 1], [BM, BK])
    gates = tl.make_tensor_descriptor(gate, [N, K], [stride_w, 1], [BN, BK])
    ups = tl.make_tensor_descriptor(up, [N, K], [stride_w, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [stride_y, 1], [BM, BN])
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        tokens = x_tiles.load([row, k])
        one = tl.dot(tokens, gates.load([column, k]).T, one)
        two = tl.dot(tokens, ups.load([column, k]).T, two)
    y_tiles.store([row, column], (one * tl.sigmoid(one) * two).to(tl.float16))


@triton.jit
def gated_pointers(
    gate, up, x, y, M, N, K, stride_gate, stride_up, stride_x, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    gates = gate + m[:, None] * stride_gate + k[None, :]
    ups = up + m[:, None] * stride_up + k[None, :]
    xs = x + k[:, None] + n[None, :] * stride_x
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = k + first < K
        right = tl.load(xs, mask=inside[:, None] & (n[None, :] < N), other=0.0)
        one += tl.dot(tl.load(gates, mask=inside[None, :] & (m[:, None] < M), other=0.0), right)
        two += tl.dot(tl.load(ups, mask=inside[None, :] & (m[:, None] < M), other=0.0), right)
        gates += BK
        ups += BK
        xs += BK
    result = tl.maximum(one, 0.0) * two + one
    tl.store(y + m[:, None] * stride_y + n[None, :], result.to(tl.bfloat16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def whole_blocks(d, a, b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    lefts = tl.make_block_ptr(a, (BM, BK), (BK, 1), (0, 0), (BM, BK), (1, 0))
    rights = tl.make_block_ptr(b, (BK, BN), (BN, 1), (0, 0), (BK, BN), (1, 0))
    outs = tl.make_block_ptr(d, (BM, BN), (BN, 1), (0, 0), (BM, BN), (1, 0))
    tl.store(outs, tl.dot(tl.load(lefts), tl.load(rights)).to(tl.float16))


@triton.jit
def whole_k(a, b, d, M, K, stride_a, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = tl.load(a + m[:, None] * stride_a + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
    right = tl.load(b + k[:, None] * BN + n[None, :], mask=k[:, None] < K, other=0.0)
    tl.store(d + m[:, None] * BN + n[None, :], tl.dot(left, right).to(tl.float16), mask=m[:, None] < M)


@triton.jit
def unmasked_pointers(a, b, d, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + m[:, None] * stride_a + k[None, :]
    rights = b + k[:, None] * stride_b + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total += tl.dot(tl.load(lefts), tl.load(rights))
        lefts += BK
        rights += BK * stride_b
    tl.store(d + m[:, None] * stride_d + n[None, :], total.to(tl.float16))


@triton.jit
def persistent_groups(
    d, a, b, M, N, K, stride_a, stride_b, stride_d, limit, mode,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        of_group = GROUP * tiles_n
        first_m = (tile // of_group) * GROUP
        rows = min(tiles_m - first_m, GROUP)
        row = (first_m + (tile % of_group) % rows) * BM
        column = ((tile % of_group) // rows) * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            left = a_tiles.load([row, step * BK])
            total = tl.dot(left, b_tiles.load([column, step * BK]).T, total)
        if limit > 0.0:
            total = tl.minimum(total, limit)
        if mode == 1:
            total = total * 0.5
        d_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def counted_pointers(
    a, b, d, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A while loop down to 0, what is left as its mask, carried pointers and promises."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.max_contiguous(tl.arange(0, BK), BK)
    inside = tl.max_constancy(n < N, 1)
    lefts = a + m[:, None] * stride_a + k[None, :]
    rights = b + k[:, None] * stride_b + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    left = K
    while left > 0:
        left_tile = tl.load(lefts, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        right_tile = tl.load(rights, mask=(k[:, None] < left) & inside[None, :], other=0.0)
        total = tl.dot(left_tile, right_tile, total)
        lefts += BK
        rights += BK * stride_b
        left -= BK
    tl.store(d + m[:, None] * stride_d + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & inside[None, :])
