"""The Triton kernels that `user_kernel.py` and `beside_triton.py` measure."""

import triton
import triton.language as tl


@triton.jit
def linear(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [N, M] = x [N, K] times w [M, K], transposed."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    w_tiles = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    x_tiles = tl.make_tensor_descriptor(x, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [N, M], [M, 1], [BN, BM])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(w_tiles.load([row, k]), x_tiles.load([column, k]).T, total)
    y_tiles.store([column, row], total.to(tl.float16).T)


@triton.jit
def small_dot(d, a, b, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """One small dot of whole blocks, by block pointers: Triton up to 3.6."""
    a_tile = tl.make_block_ptr(a, (BLOCK_M, BLOCK_K), (BLOCK_K, 1), (0, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b_tile = tl.make_block_ptr(b, (BLOCK_K, BLOCK_N), (BLOCK_N, 1), (0, 0), (BLOCK_K, BLOCK_N), (1, 0))
    d_tile = tl.make_block_ptr(d, (BLOCK_M, BLOCK_N), (BLOCK_N, 1), (0, 0), (BLOCK_M, BLOCK_N), (1, 0))
    tl.store(d_tile, tl.dot(tl.load(a_tile), tl.load(b_tile)).to(tl.float16))


@triton.jit
def by_pointers(y, x, w, bias, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [N, K], transposed, and bias: pointers, masks and a loop that moves them."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + (m % M)[:, None] * K + k[None, :]
    w_at = w + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
        right = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        x_at += BK
        w_at += BK
    total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def batch(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [E, M, N] = w [E, M, K] times x [E, K, N]."""
    entry = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + entry * M * K + m[:, None] * K + k[None, :]
    x_at = x + entry * K * N + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        w_at += BK
        x_at += BK * N
    out = y + entry * M * N + m[:, None] * N + n[None, :]
    tl.store(out, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def experts(y, x, w, expert, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [expert of each BM rows, N, K], transposed."""
    block = tl.program_id(0)
    m = block * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + tl.load(expert + block) * N * K + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(w_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        x_at += BK
        w_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def split_sums(y, w, x, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] += w [M, K] times x [N, K], transposed: K split over programs, which add their sums."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * SPLIT)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK * SPLIT), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK * SPLIT) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        w_at += BK * SPLIT
        x_at += BK * SPLIT
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def row_maxima(y, w, x, most, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [N, K], transposed, and the greatest result of each row of a tile: two outputs."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right)
        w_at += BK
        x_at += BK
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=inside)
    tl.store(most + tl.program_id(1) * M + m, tl.max(tl.where(inside, total, float("-inf")), axis=1), mask=m < M)


@triton.jit
def dequantized(y, w, x, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [N, K] of int8 with a scale for each row, transposed."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    by = tl.load(scale + n, mask=n < N, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        at = first + k
        left = tl.load(w + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        right = tl.load(x + n[None, :] * K + at[:, None], mask=(at[:, None] < K) & (n[None, :] < N), other=0)
        total = tl.dot(left, (right.to(tl.float32) * by[None, :]).to(tl.float16), total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))
