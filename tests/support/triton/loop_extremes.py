"""Kernels whose loop keeps the largest or least element of what each step computes."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def most_alike(q, d, y, M, N, K: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, LEAST: tl.constexpr):
    """The largest (or least) product of each row of q [M, K] with the N rows of d, which is sparse."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, K)
    left = tl.load(q + m[:, None] * K + k[None, :], mask=(m < M)[:, None], other=0.0)
    found = tl.full((TM,), float("inf") if LEAST else float("-inf"), tl.float32)
    for at in range(0, N, TN):
        inside = at + n < N
        right = tl.load(d + (at + n)[:, None] * K + k[None, :], mask=inside[:, None], other=0.0)
        products = tl.dot(left, right.T)
        if LEAST:
            found = tl.minimum(found, tl.min(tl.where(inside[None, :], products, float("inf")), axis=1))
        else:
            found = tl.maximum(found, tl.max(tl.where(inside[None, :], products, float("-inf")), axis=1))
    tl.store(y + m, found, mask=m < M)


@triton.jit
def extremes_of_rows(x, most, least, M, N, TM: tl.constexpr, TN: tl.constexpr):
    """The largest and the least integer of each row of x [M, N], without a dot; none of a row is INT_MIN or INT_MAX."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, TN)
    high, low = tl.full((TM,), -(2**31), tl.int32), tl.full((TM,), 2**31 - 1, tl.int32)
    for at in range(0, N, TN):
        inside = (m < M)[:, None] & (at + n < N)[None, :]
        part = tl.load(x + m[:, None] * N + (at + n)[None, :], mask=inside, other=0)
        high = tl.maximum(high, tl.max(tl.where(inside, part, -(2**31)), axis=1))
        low = tl.minimum(low, tl.min(tl.where(inside, part, 2**31 - 1), axis=1))
    tl.store(most + m, high, mask=m < M)
    tl.store(least + m, low, mask=m < M)
