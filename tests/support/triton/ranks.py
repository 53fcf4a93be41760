"""Kernels that read as many rows of a matrix as a loaded number says, which is bounded by the matrix."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def adapters(
    x, w, y, chosen, ranks, M, MOST: tl.constexpr, N: tl.constexpr, K: tl.constexpr, WHOLE: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """Tiles of rows of x, each times the first rows of its adapter's w [N, K]. WHOLE: the other columns of y are zeros."""
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    adapter = tl.load(chosen + tl.program_id(1))
    rows = tl.minimum(MOST, tl.load(ranks + adapter) * 2)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + adapter * N * K + n[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        inside = k < K - i * TK
        a = tl.load(x_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(w_at, mask=inside[:, None] & (n < rows)[None, :], other=0.0)
        total += tl.dot(a, b)
        x_at += TK
        w_at += TK
    stored = n < (N if WHOLE else rows)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & stored[None, :])


@triton.jit
def low_ranks(
    x, w, y, starts, ranks, K, stride_w,
    M: tl.constexpr, N: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """x times the first columns of some rows of w: at most K columns, and no more than a loaded rank. The rows begin at a loaded one."""
    m, n, k = tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    first = tl.load(starts + tl.program_id(0))
    rank = tl.minimum(K, tl.load(ranks + tl.program_id(0)))
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + first * stride_w + n[None, :] * stride_w + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(rank, TK)):
        inside = k < rank - i * TK
        a = tl.load(x_at, mask=(m < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(w_at, mask=inside[:, None] & (n < N)[None, :], other=0.0)
        total += tl.dot(a, b)
        x_at += TK
        w_at += TK
    y_at = y + tl.program_id(0) * M * N + m[:, None] * N + n[None, :]
    tl.store(y_at, total, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def ragged(
    x, down, up, y, starts, ranks, M, stride_r, stride_n, N: tl.constexpr, K: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """x by some rows of down, and that by as many columns of up: at most R, as many as a loaded rank. They begin at a loaded one, and again
    where the rank is less.
    """
    adapter = tl.program_id(0)
    first, rank = tl.load(starts + adapter), tl.load(ranks + adapter)
    m, n, k = tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    r = first + tl.arange(0, R) % rank
    x_at = x + m[:, None] * K + k[None, :]
    down_at = down + r[None, :] * K + k[:, None]
    low = tl.zeros((TM, R), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        a = tl.load(x_at, mask=(m < M)[:, None] & (k < K - i * TK)[None, :], other=0.0)
        b = tl.load(down_at, mask=(k < K - i * TK)[:, None], other=0.0)
        low = tl.dot(a, b, low)
        x_at += TK
        down_at += TK
    low = low.to(up.dtype.element_ty)
    low = tl.where(tl.arange(0, R)[None, :] < rank, low, tl.zeros_like(low))
    up_at = up + r[:, None] * stride_r + n[None, :] * stride_n
    y_at = y + adapter * M * N + m[:, None] * N + n[None, :]
    for i in range(tl.cdiv(N, TN)):
        inside = n < N - i * TN
        total = tl.dot(low, tl.load(up_at, mask=inside[None, :]))
        tl.store(y_at, total, mask=(m < M)[:, None] & inside[None, :])
        up_at += TN * stride_n
        y_at += TN
