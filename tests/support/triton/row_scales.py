"""Kernels whose sums are scaled by a vector in each step, or added to halves in memory."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def ratios(x, w, scales, y, M, K, stride, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Each step of x w' is divided by the row's scale of the step: sums are kept in units of the last scale."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    row = m < M
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    before = tl.load(scales + m * stride, mask=row, other=1.0)
    for i in range(K // TK):
        scale = tl.load(scales + m * stride + i + 1, mask=row, other=1.0)
        a = tl.load(x_at, mask=row[:, None], other=0.0)
        total = tl.dot(a, tl.load(w_at), total)
        total *= (before / scale)[:, None]
        before = scale
        x_at += TK
        w_at += TK
    tl.store(y + m[:, None] * TN + n[None, :], total, mask=row[:, None])


@triton.jit
def shares(
    x, w, y, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, SHARES: tl.constexpr,
    MASKED: tl.constexpr = True,
):  # fmt: skip
    """Programs add their shares of the sums of x w' to y, which holds halves. Without masks, K is whole steps of all of them."""
    m = tl.program_id(0) * TM + tl.arange(0, TM)
    n = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.program_id(2) * TK + tl.arange(0, TK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + n[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    if MASKED:
        for i in range(tl.cdiv(K, TK * SHARES)):
            inside = k < K - i * TK * SHARES
            a = tl.load(x_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
            b = tl.load(w_at, mask=inside[:, None] & (n < N)[None, :], other=0.0)
            total = tl.dot(a + a, b, total)
            x_at += TK * SHARES
            w_at += TK * SHARES
    else:
        for _ in range(K // (TK * SHARES)):
            a = tl.load(x_at, mask=(m < M)[:, None], other=0.0)
            b = tl.load(w_at, mask=(n < N)[None, :], other=0.0)
            total = tl.dot(a + a, b, total)
            x_at += TK * SHARES
            w_at += TK * SHARES
    total *= 0.25
    tl.atomic_add(
        y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


@triton.jit
def both_scaled(
    x, w, of_rows, of_columns, listed, y, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):  # fmt: skip
    """Each step's sums are scaled by vectors for listed rows and for columns, before they are added."""
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.program_id(1) * TN + tl.arange(0, TN), tl.arange(0, TK)
    at = tl.load(listed + m, mask=m < M, other=0)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for step in range(tl.cdiv(K, TK)):
        inside = step * TK + k < K
        one = tl.load(
            x + at[:, None] * K + (step * TK + k)[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0
        )
        two = tl.load(w + n[None, :] * K + (step * TK + k)[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        down = tl.load(of_rows + at * tl.cdiv(K, TK) + step, mask=m < M, other=0.0)
        along = tl.load(of_columns + n * tl.cdiv(K, TK) + step, mask=n < N, other=0.0)
        total += tl.dot(one, two) * down[:, None] * along[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
