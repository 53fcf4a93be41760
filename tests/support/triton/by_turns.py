"""Experts whose gate and up projection are read by turns: neighbouring columns of a tile are one of each."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def by_turns(
    x, w, scales, y, M, N, K, stride_e, SCALED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """gate * up of M rows of x for each expert. Gate and up are N // 2 rows each of the expert's matrix. SCALED: by a number of each."""
    m, n, expert = tl.program_id(0) * TM, tl.program_id(1), tl.program_id(2)
    rows, i, k = m + tl.arange(0, TM), tl.arange(0, TN).to(tl.int64), tl.arange(0, TK)
    half = (n * (TN // 2) + i // 2) % (N // 2)
    columns = (half + (i % 2) * (N // 2)) % N
    left = x + (expert * M + rows)[:, None] * K + k[None, :]
    right = w + expert * stride_e + columns[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(tl.cdiv(K, TK)):
        a = tl.load(left, mask=(rows < M)[:, None] & (k < K - step * TK)[None, :], other=0.0)
        b = tl.load(right, mask=(k < K - step * TK)[:, None], other=0.0)
        total += tl.dot(a, b)
        left += TK
        right += TK
    if SCALED:
        total = total * tl.load(scales + expert * N + columns)[None, :]
    gate, up = total.to(tl.float16).to(tl.float32).reshape(TM, TN // 2, 2).split()
    out = n * (TN // 2) + tl.arange(0, TN // 2)
    inside = (rows < M)[:, None] & (out < N // 2)[None, :]
    tl.store(y + (expert * M + rows)[:, None] * (N // 2) + out[None, :], gate * up, mask=inside)


@triton.jit
def by_turns_of_known_size(x, w, y, M, N: tl.constexpr, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """gate + 2 * up of one matrix, whose mask counts the columns of both."""
    m, n = tl.program_id(0) * TM, tl.program_id(1)
    rows, i, k = m + tl.arange(0, TM), tl.arange(0, TN), tl.arange(0, TK)
    columns = n * (TN // 2) + i // 2 + (i % 2) * (N // 2)
    inside = (n * TN + i < N)[:, None]
    total = tl.zeros((TN, TM), tl.float32)
    for step in range(tl.cdiv(K, TK)):
        part = step * TK + k
        a = tl.load(x + rows[None, :] * K + part[:, None], mask=(rows < M)[None, :] & (part < K)[:, None], other=0.0)
        b = tl.load(w + columns[:, None] * K + part[None, :], mask=inside & (part < K)[None, :], other=0.0)
        total += tl.dot(b, a)
    gate, up = tl.trans(total).reshape(TM, TN // 2, 2).split()
    out = n * (TN // 2) + tl.arange(0, TN // 2)
    inside = (rows < M)[:, None] & (out < N // 2)[None, :]
    tl.store(y + rows[:, None] * (N // 2) + out[None, :], gate + 2 * up, mask=inside)
