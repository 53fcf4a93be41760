"""Kernels that read both halves of a tensor's rows, each at its own place."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def gated_halves(
    x, w, y, M, N, K, WRAPPED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):  # fmt: skip
    """x times the first half of w [N, K], times x times the second half. Rows of a half wrap, or are masked."""
    m = tl.program_id(0) * TM + tl.arange(0, TM)
    n = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    one_rows = n % (N // 2) if WRAPPED else n
    x_at = x + (m % M)[:, None] * K + k[None, :]
    one_at = w + one_rows[None, :] * K + k[:, None]
    two_at = w + (one_rows + N // 2)[None, :] * K + k[:, None]
    gate = tl.zeros((TM, TN), tl.float32)
    up = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        inside = k < K - i * TK
        a = tl.load(x_at, mask=inside[None, :], other=0.0)
        if WRAPPED:
            one = tl.load(one_at, mask=inside[:, None], other=0.0)
            two = tl.load(two_at, mask=inside[:, None], other=0.0)
        else:
            one = tl.load(one_at, mask=inside[:, None] & (n < N // 2)[None, :], other=0.0)
            two = tl.load(two_at, mask=inside[:, None] & (n + N // 2 < N)[None, :], other=0.0)
        gate += tl.dot(a, one)
        up += tl.dot(a, two)
        x_at += TK
        one_at += TK
        two_at += TK
    stored = (m < M)[:, None] & (n < N // 2)[None, :]
    tl.store(y + m[:, None] * (N // 2) + n[None, :], gate * up, mask=stored)


@triton.jit
def second_half(x, w, y, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """The second half of the rows of x, times w: the rows wrap at the half, and are moved then."""
    m = tl.program_id(0) * TM + tl.arange(0, TM)
    n = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    x_at = x + (m % M + M)[:, None] * K + k[None, :]
    w_at = w + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        a = tl.load(x_at, mask=(k < K - i * TK)[None, :], other=0.0)
        b = tl.load(w_at, mask=(k < K - i * TK)[:, None], other=0.0)
        total += tl.dot(a, b)
        x_at += TK
        w_at += TK
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
