"""Kernels whose arguments are tuples."""

import triton
import triton.language as tl


@triton.jit
def tuple_arguments(d, operands, sizes, strides, scale, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """operands: a and b. sizes: rows, columns and depth, by name. strides: of d, and those of both operands. scale: one number."""
    a, b = operands[0], operands[1]
    of_d, of_both = strides
    of_a, of_b = of_both
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, sizes.depth, BK):
        k = first + tl.arange(0, BK)
        inside = k < sizes.depth
        left = tl.load(
            a + m[:, None] * of_a[0] + k[None, :] * of_a[1], mask=(m < sizes.rows)[:, None] & inside[None, :], other=0.0
        )
        right = tl.load(
            b + k[:, None] * of_b[0] + n[None, :] * of_b[1],
            mask=inside[:, None] & (n < sizes.columns)[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total)
    total = total * scale[0]
    tl.store(
        d + m[:, None] * of_d[0] + n[None, :] * of_d[1],
        total.to(tl.float16),
        mask=(m < sizes.rows)[:, None] & (n < sizes.columns)[None, :],
    )


@triton.jit
def constants_behind_a_loop(d, n, flags):
    for i in range(n):
        tl.store(d + i, 1.0)
    if flags[0] is None:
        tl.store(d + n, flags[1][0] + flags[1][1])
