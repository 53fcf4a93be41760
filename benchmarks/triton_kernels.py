"""The Triton kernel that `user_kernel.py` measures."""

import triton
import triton.language as tl


@triton.jit
def linear(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [N, M] = x [N, K] · w [M, K]ᵀ."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    w_tiles = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    x_tiles = tl.make_tensor_descriptor(x, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [N, M], [M, 1], [BN, BM])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(w_tiles.load([row, k]), x_tiles.load([column, k]).T, total)
    y_tiles.store([column, row], total.to(tl.float16).T)
