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


@triton.jit
def flat_experts_by_pointers(
    x, w, y, M, N, K, experts, MASKED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """The same by pointers to w. MASKED: a mask ends with the last matrix; else nothing bounds rows of w."""
    m, n, expert = tl.program_id(0) * TM, tl.program_id(1) * TN, tl.program_id(2)
    rows, columns = m + tl.arange(0, TM), n + tl.arange(0, TN)
    total = tl.zeros((TM, TN), tl.float32)
    for i in range(tl.cdiv(K, TK)):
        k = i * TK + tl.arange(0, TK)
        a = tl.load(x + (expert * M + rows)[:, None] * K + k[None, :], mask=(rows < M)[:, None], other=0.0)
        below = expert * K + k
        inside = (columns < N)[None, :]
        if MASKED:
            inside = (below < experts * K)[:, None] & inside
        total += tl.dot(a, tl.load(w + below[:, None] * N + columns[None, :], mask=inside, other=0.0))
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + (expert * M + rows)[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def flat_experts_by_blocks(
    x, w, y, M, N, K: tl.constexpr, experts, CHECKED: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """The same by a block pointer, whose programs take all experts in turn. CHECKED: rows of w are checked."""
    m, n = tl.program_id(0) * TM, tl.program_id(1) * TN
    rows, columns = m + tl.arange(0, TM), n + tl.arange(0, TN)
    for expert in range(experts):
        tile = tl.make_block_ptr(w, (experts * K, N), (N, 1), (expert * K, n), (TK, TN), (1, 0))
        total = tl.zeros((TM, TN), tl.float32)
        for i in range(tl.cdiv(K, TK)):
            k = i * TK + tl.arange(0, TK)
            a = tl.load(x + (expert * M + rows)[:, None] * K + k[None, :], mask=(rows < M)[:, None], other=0.0)
            b = tl.load(tile, boundary_check=(0, 1)) if CHECKED else tl.load(tile, boundary_check=(1,))
            total += tl.dot(a, b)
            tile = tl.advance(tile, (TK, 0))
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        tl.store(y + (expert * M + rows)[:, None] * N + columns[None, :], total, mask=inside)
