"""The first documented kernel with a sparse operand: block pointers over one tile of 32×16×64, two warps' rows high.

Warpgroup products have 64 rows, so the compiler chooses `mma.sp.m16n8k32`. Block pointers need Triton 3.8 or older.
"""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, pruned, random

import louver


@triton.jit
def dot_kernel(D, A, B, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    a_ptrs = tl.make_block_ptr(A, (BLOCK_M, BLOCK_K), (BLOCK_K, 1), (0, 0), (BLOCK_M, BLOCK_K), (1, 0))
    b_ptrs = tl.make_block_ptr(B, (BLOCK_K, BLOCK_N), (BLOCK_N, 1), (0, 0), (BLOCK_K, BLOCK_N), (1, 0))
    d_ptrs = tl.make_block_ptr(D, (BLOCK_M, BLOCK_N), (BLOCK_N, 1), (0, 0), (BLOCK_M, BLOCK_N), (1, 0))
    a = tl.load(a_ptrs)
    b = tl.load(b_ptrs)
    d = tl.dot(a, b).to(tl.float16)
    tl.store(d_ptrs, d)


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
