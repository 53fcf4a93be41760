"""Kernels of a sparse and a dense dot whose sums meet: a weight with an adapter, and a gate by a dense weight."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def adapted(x, w, a, b, y, M, N, K, scale, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, R: tl.constexpr):
    """x (w + scale a b), each step of K by itself; w [K, N] is sparse along K, a [K, R] and b [R, N] are dense."""
    m, n = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN)
    k, r = tl.arange(0, TK), tl.arange(0, R)
    second = tl.load(b + r[:, None] * N + n[None, :])
    total = tl.zeros((TM, TN), tl.float32)
    for at in range(0, K, TK):
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None], other=0.0)
        right = tl.load(w + (at + k)[:, None] * N + n[None, :])
        first = tl.load(a + (at + k)[:, None] * R + r[None, :])
        total = tl.dot(left, right, total)
        rank = tl.dot(left, first) * scale
        total = tl.dot(rank.to(second.dtype), second, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None])


@triton.jit
def gated(x, w, g, y, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """The sum over steps of K of (x w') * relu(x g'), each of a step by itself; w [N, K] is sparse, g is dense."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN), tl.arange(0, TK)
    total = tl.zeros((TM, TN), tl.float32)
    for at in range(0, K, TK):
        left = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None], other=0.0)
        one = tl.dot(left, tl.load(w + n[None, :] * K + (at + k)[:, None]))
        two = tl.dot(left, tl.load(g + n[None, :] * K + (at + k)[:, None]))
        total += one * tl.maximum(two, 0.0)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None])
