"""A kernel whose tiles begin behind a range that wraps."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def wrapped_ranges(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times w.T, of rows that begin at a tile, plus a range that the size of the tensor wraps, as in stream-K products."""
    m = tl.program_id(0) * BM + tl.arange(0, BM) % M
    n = tl.program_id(1) * BN + tl.arange(0, BN) % N
    k = tl.arange(0, BK)
    a_at, b_at = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside = step * BK + k < K
        a = tl.load(a_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(b_at, mask=(n < N)[None, :] & inside[:, None], other=0.0)
        total += tl.dot(a, b)
        a_at += BK
        b_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
