"""A linear layer as it is written: tokens on the left, the sparse weight on the right, y = x · wᵀ + bias."""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, pruned, random

import louver


@triton.jit
def linear(y, x, w, bias, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(x_tiles.load([row, k]), w_tiles.load([column, k]).T, total)
    n = column + tl.arange(0, BN)
    total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    y_tiles.store([row, column], total.to(tl.float16))


def example(place: Place, m: int = 136, n: int = 200, k: int = 264) -> float:
    """x [m, k], w [n, k] sparse, bias [n] of f32, y [m, n]; n and k multiples of 8."""
    rng = np.random.default_rng(4)
    x, w = random(rng, m, k), pruned(rng, n, k)
    bias = rng.standard_normal(n, np.float32)
    y = place.empty(m, n)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 128))
    s = louver.compress(w, "2:4")
    place.run(louver.jit(linear), grid, y, place.array(x), s, place.array(bias), m, n, k, BM=64, BN=128, BK=64)
    x, w = x.astype(np.float64), w.astype(np.float64)
    return check(place.host(y), x @ w.T + bias, np.abs(x) @ np.abs(w).T + np.abs(bias), k)


if __name__ == "__main__":
    main(example, __doc__, (136, 200, 264))
