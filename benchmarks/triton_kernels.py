"""The Triton kernels that `user_kernel.py` measures."""

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
