"""Vectors N:M@L as NM-SpMM has them: a weight with 2 of 8 vectors of 64 rows left, B' and D, and the product by equation (1)."""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, random

import louver

PATTERN = louver.Pattern.parse("2:8@64")


@triton.jit
def product(y, w, x, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    w_tiles = tl.make_tensor_descriptor(w, [M, K], [K, 1], [BM, BK])
    x_tiles = tl.make_tensor_descriptor(x, [K, N], [N, 1], [BK, BN])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(w_tiles.load([row, k]), x_tiles.load([k, column]), total)
    y_tiles.store([row, column], (total * scale).to(tl.float16))


def example(place: Place, m: int = 136, n: int = 200, k: int = 264) -> float:
    """w [m, k] sparse, the paper's B transposed; x [k, n], its A column-major; y [m, n]; n a multiple of 8."""
    rng = np.random.default_rng(5)
    dense, x = random(rng, m, k), random(rng, k, n)
    w = louver.prune(dense, PATTERN, norm="l1")
    s = louver.compress(w, PATTERN)
    stored, d = s.values.T, s.unpacked_indices().T
    print(f"B' {list(stored.shape)}, D {list(d.shape)}: {s.nbytes:,} bytes for {w.nbytes:,}")

    y = place.empty(m, n)
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    scale = PATTERN.rescaling
    place.run(louver.jit(product), grid, y, s, place.array(x), scale, m, n, k, BM=64, BN=64, BK=64)

    u, j = np.arange(len(stored))[:, None], np.arange(m)
    kept = np.zeros((s.groups * PATTERN.m, m))
    kept[u // PATTERN.n * PATTERN.m + d[:, j // PATTERN.length], j] = stored
    x, kept = x.astype(np.float64), scale * kept[:k].T
    lost = np.abs(kept @ x - dense.astype(np.float64) @ x).mean()
    print(f"equation (2): the product differs from that of the dense weight by {lost:.3g} on average")
    return check(place.host(y), kept @ x, np.abs(kept) @ np.abs(x), k)


if __name__ == "__main__":
    main(example, __doc__, (136, 200, 264))
