"""Layers of experts as users write them in Triton: each block of tokens takes the sparse weights of the expert that `ids` has for it.

x [M, K] holds tokens, w [E, N, K] a weight for each expert, y [M, N]; block i of BM tokens takes w[ids[i]].
"""

import triton
import triton.language as tl


@triton.jit
def expert_pointers(
    x, w, y, ids, M, N, K, stride_x, stride_e, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    expert = tl.load(ids + block)
    m = block * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * stride_x + k[None, :]
    w_at = w + expert * stride_e + n[None, :] * stride_w + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        tokens = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        weights = tl.load(w_at, mask=(n[None, :] < N) & (k[:, None] < left), other=0.0)
        total += tl.dot(tokens, weights)
        x_at += BK
        w_at += BK
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * stride_y + n[None, :], total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def expert_descriptors(x, w, y, ids, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    block = tl.program_id(1)
    column = tl.program_id(0) * BN
    expert = tl.load(ids + block).to(tl.int64)
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w + expert * N * K, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(x_tiles.load([block * BM, k]), w_tiles.load([column, k]).T, total)
    y_tiles.store([block * BM, column], total.to(tl.float16))


@triton.jit
def expert_groups(
    x, w, y, ids, scale, M, N, K, stride_x, stride_e, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Tiles in groups that share operands in a cache; a factor for each token."""
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    of_group = GROUP * tl.cdiv(N, BN)
    first = (program // of_group) * GROUP
    rows = min(tiles_m - first, GROUP)
    block = first + (program % of_group) % rows
    m = block * BM + tl.arange(0, BM)
    n = (program % of_group) // rows * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + (m % M)[:, None] * stride_x + k[None, :]
    w_at = w + tl.load(ids + block) * stride_e + (n % N)[None, :] * stride_w + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        tokens = tl.load(x_at, mask=k[None, :] < left, other=0.0)
        total = tl.dot(tokens, tl.load(w_at, mask=k[:, None] < left, other=0.0), total)
        x_at += BK
        w_at += BK
    total *= tl.load(scale + m, mask=m < M, other=0.0)[:, None]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * stride_y + n[None, :], total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def expert_rows(
    x, w, y, ids, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Weights [E · N, K]: those of each expert below the ones before."""
    block = tl.program_id(0)
    expert = tl.load(ids + block)
    m = block * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tokens = tl.load(x + m[:, None] * stride_x + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        rows = (expert * N + n)[None, :]
        weights = tl.load(w + rows * stride_w + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        total += tl.dot(tokens, weights)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * stride_y + n[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def expert_programs(x, w, y, ids, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs go from tile to tile; a descriptor of all experts."""
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w, [E, N, K], [N * K, K, 1], [1, BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    tiles_m = tl.cdiv(M, BM)
    for tile in range(tl.program_id(0), tiles_m * tl.cdiv(N, BN), tl.num_programs(0)):
        block = tile % tiles_m
        column = tile // tiles_m * BN
        expert = tl.load(ids + block)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            weights = w_tiles.load([expert, column, k]).reshape(BN, BK)
            total = tl.dot(x_tiles.load([block * BM, k]), weights.T, total)
        y_tiles.store([block * BM, column], total.to(tl.float16))


@triton.jit
def weights_left(w, x, y, ids, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [N, M] = w[ids] · xᵀ: the sparse operand is the left one of the dot."""
    block = tl.program_id(1)
    expert = tl.load(ids + block)
    n = tl.program_id(0) * BN
    w_tiles = tl.make_tensor_descriptor(w, [E, N, K], [N * K, K, 1], [1, BN, BK])
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    y_tiles = tl.make_tensor_descriptor(y, [N, M], [M, 1], [BN, BM])
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for k in range(0, K, BK):
        weights = w_tiles.load([expert, n, k]).reshape(BN, BK)
        total = tl.dot(weights, x_tiles.load([block * BM, k]).T, total)
    y_tiles.store([n, block * BM], total.to(tl.float16))


@triton.jit
def rows_numbered(w, x, y, ids, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [N, M]: each block of BN rows of the weights is taken from the expert that `ids` has for it."""
    block = tl.program_id(0)
    expert = tl.load(ids + block)
    m = tl.program_id(1) * BM
    w_tiles = tl.make_tensor_descriptor(w, [E, N, K], [N * K, K, 1], [1, BN, BK])
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    y_tiles = tl.make_tensor_descriptor(y, [N, M], [M, 1], [BN, BM])
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for k in range(0, K, BK):
        weights = w_tiles.load([expert, block * BN, k]).reshape(BN, BK)
        total = tl.dot(weights, x_tiles.load([m, k]).T, total)
    y_tiles.store([block * BN, m], total.to(tl.float16))
