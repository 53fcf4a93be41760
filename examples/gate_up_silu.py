"""The first half of a transformer's MLP in one kernel: y = silu(x · gateᵀ) · (x · upᵀ), both weights sparse."""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, pruned, random

import louver


@triton.jit
def gate_up_silu(y, x, gate, up, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    gate_tiles = tl.make_tensor_descriptor(gate, [N, K], [K, 1], [BN, BK])
    up_tiles = tl.make_tensor_descriptor(up, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    gates = tl.zeros((BM, BN), dtype=tl.float32)
    ups = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        tokens = x_tiles.load([row, k])
        gates = tl.dot(tokens, gate_tiles.load([column, k]).T, gates)
        ups = tl.dot(tokens, up_tiles.load([column, k]).T, ups)
    y_tiles.store([row, column], (gates * tl.sigmoid(gates) * ups).to(tl.float16))


def example(place: Place, m: int = 136, n: int = 200, k: int = 264) -> float:
    """x [m, k], gate and up [n, k], y [m, n]; n and k multiples of 8."""
    rng = np.random.default_rng(3)
    x, gate, up = random(rng, m, k), pruned(rng, n, k), pruned(rng, n, k)
    y = place.empty(m, n)
    weights = louver.compress(gate, "2:4"), louver.compress(up, "2:4")
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 64))
    place.run(louver.jit(gate_up_silu), grid, y, place.array(x), *weights, m, n, k, BM=128, BN=64, BK=64)
    x, gate, up = (each.astype(np.float64) for each in (x, gate, up))
    gates, ups = x @ gate.T, x @ up.T
    silu = gates / (1 + np.exp(-gates))
    # A slope of silu is at most 1.1; its exponential is as exact as f32.
    magnitude = 1.1 * np.abs(ups) * (np.abs(x) @ np.abs(gate).T) + np.abs(silu) * (np.abs(x) @ np.abs(up).T)
    return check(place.host(y), silu * ups, magnitude + np.abs(silu * ups), k)


if __name__ == "__main__":
    main(example, __doc__, (136, 200, 264))
