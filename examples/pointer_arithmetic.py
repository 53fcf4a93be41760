"""A product by pointer arithmetic: programs in groups, rows wrapped by `% M`, K masked, a leaky relu behind it."""

import numpy as np
import triton
import triton.language as tl
from places import Place, check, main, pruned, random

import louver

SLOPE = 0.05


@triton.jit
def product(
    w, x, y, M, N, K,
    stride_wm, stride_wk, stride_xk, stride_xn, stride_ym, stride_yn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, SLOPE: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = number // (GROUP * columns)
    first = group * GROUP
    height = min(rows - first, GROUP)
    inside = number % (GROUP * columns)
    tile_m = first + inside % height
    tile_n = inside // height
    m_wrapped = (tile_m * BM + tl.arange(0, BM)) % M
    n_wrapped = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    w_at = w + m_wrapped[:, None] * stride_wm + k[None, :] * stride_wk
    x_at = x + k[:, None] * stride_xk + n_wrapped[None, :] * stride_xn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        total = tl.dot(
            tl.load(w_at, mask=k[None, :] < left, other=0.0), tl.load(x_at, mask=k[:, None] < left, other=0.0), total
        )
        w_at += BK * stride_wk
        x_at += BK * stride_xk
    total = tl.where(total > 0, total, SLOPE * total)
    m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
    y_at = y + m[:, None] * stride_ym + n[None, :] * stride_yn
    tl.store(y_at, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def example(place: Place, m: int = 200, n: int = 136, k: int = 264) -> float:
    """w [m, k] sparse, x [k, n], y [m, n]; any sizes."""
    rng = np.random.default_rng(2)
    w, x = pruned(rng, m, k), random(rng, k, n)
    y = place.empty(m, n)
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 64),)
    place.run(
        louver.jit(product), grid,
        louver.compress(w, "2:4"), place.array(x), y, m, n, k, k, 1, n, 1, n, 1,
        BM=128, BN=64, BK=64, GROUP=4, SLOPE=SLOPE,
    )  # fmt: skip
    w, x = w.astype(np.float64), x.astype(np.float64)
    total = w @ x
    slope = float(np.float32(SLOPE))
    return check(place.host(y), np.where(total > 0, total, slope * total), np.abs(w) @ np.abs(x), k)


if __name__ == "__main__":
    main(example, __doc__, (200, 136, 264))
