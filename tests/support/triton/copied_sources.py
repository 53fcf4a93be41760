"""Kernels of few columns whose loop changes x before the dot, stores it, or reads it once more."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def kept_changes(x, w, y, kept, squares, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """relu(x) w', the changed x, and the sums of the squares of x; w [N, K] is sparse."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    total, square = tl.zeros((TM, TN), tl.float32), tl.zeros((TM,), tl.float32)
    for at in range(0, K, TK):
        inside = (m < M)[:, None] & (at + k < K)[None, :]
        a = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=inside, other=0.0)
        b = tl.load(w + n[None, :] * K + (at + k)[:, None], mask=(n < N)[None, :] & (at + k < K)[:, None], other=0.0)
        square += tl.sum(a.to(tl.float32) * a.to(tl.float32), axis=1)
        changed = tl.maximum(a, 0.0)
        tl.store(kept + m[:, None] * K + (at + k)[None, :], changed, mask=inside)
        total = tl.dot(changed, b, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
    tl.store(squares + m, square, mask=m < M)


@triton.jit
def squares_beside(x, w, y, squares, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """x w', and the sums of the squares of x; w [N, K] is sparse."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    total, square = tl.zeros((TM, TN), tl.float32), tl.zeros((TM,), tl.float32)
    for at in range(0, K, TK):
        a = tl.load(x + m[:, None] * K + (at + k)[None, :], mask=(m < M)[:, None] & (at + k < K)[None, :], other=0.0)
        b = tl.load(w + n[None, :] * K + (at + k)[:, None], mask=(n < N)[None, :] & (at + k < K)[:, None], other=0.0)
        square += tl.sum(a.to(tl.float32) * a.to(tl.float32), axis=1)
        total = tl.dot(a, b, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
    tl.store(squares + m, square, mask=m < M)
