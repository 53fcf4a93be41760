"""A kernel that reads a batch of matrices as one, which has their rows below each other."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def flat_experts(x, w, y, M, N: tl.constexpr, K: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """M rows of x for each expert, times its rows of the descriptor w [experts * K, N]."""
    m, n, expert = tl.program_id(0) * TM, tl.program_id(1) * TN, tl.program_id(2)
    rows, columns = m + tl.arange(0, TM), n + tl.arange(0, TN)
    total = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        k = i * TK + tl.arange(0, TK)
        inside = (rows < M)[:, None] & (k < K)[None, :]
        a = tl.load(x + (expert * M + rows)[:, None] * K + k[None, :], mask=inside, other=0.0)
        total += tl.dot(a, w.load([expert * K + i * TK, n]))
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + (expert * M + rows)[:, None] * N + columns[None, :], total, mask=inside)
