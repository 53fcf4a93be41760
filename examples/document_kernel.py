"""The first documented kernel with a sparse operand: one tile of 32×16×64, two warps' rows high.

Warpgroup products have 64 rows, so the compiler chooses `mma.sp.m16n8k32`.
"""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, pruned, random

import louver


@triton.jit
def dot_kernel(D, A, B, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    a_tiles = tl.make_tensor_descriptor(A, [BLOCK_M, BLOCK_K], [BLOCK_K, 1], [BLOCK_M, BLOCK_K])
    b_tiles = tl.make_tensor_descriptor(B, [BLOCK_K, BLOCK_N], [BLOCK_N, 1], [BLOCK_K, BLOCK_N])
    d_tiles = tl.make_tensor_descriptor(D, [BLOCK_M, BLOCK_N], [BLOCK_N, 1], [BLOCK_M, BLOCK_N])
    d = tl.dot(a_tiles.load([0, 0]), b_tiles.load([0, 0]))
    d_tiles.store([0, 0], d.to(tl.float16))


def example(place: Place, m: int = 32, n: int = 16, k: int = 64) -> float:
    """One tile: its sizes are the kernel's, powers of two."""
    rng = np.random.default_rng(1)
    w, b = pruned(rng, m, k), random(rng, k, n)
    d = place.empty(m, n)
    place.run(
        louver.jit(dot_kernel), (1,), d, louver.compress(w, "2:4"), place.array(b), BLOCK_M=m, BLOCK_N=n, BLOCK_K=k
    )
    a, b = w.astype(np.float64), b.astype(np.float64)
    return check(place.host(d), a @ b, np.abs(a) @ np.abs(b), k)


if __name__ == "__main__":
    main(example, __doc__, (32, 16, 64))
