"""Two products in one launch: the first programs compute tiles of one output, the others those of the other one."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def side_by_side(x, one, other, y, z, M, N1, N2, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """y = x @ one.T and z = x @ other.T. Rows of the weights begin again."""
    n, rows, k = tl.program_id(0), tl.program_id(1) * TM + tl.arange(0, TM), tl.arange(0, TK)
    tiles = tl.cdiv(N1, TN)
    total = tl.zeros((TM, TN), tl.float32)
    left = x + rows[:, None] * K + k[None, :]
    if n < tiles:
        columns = n * TN + tl.arange(0, TN)
        right = one + (columns % N1)[:, None] * K + k[None, :]
        for i in range(tl.cdiv(K, TK)):
            a = tl.load(left + i * TK, mask=(rows < M)[:, None] & (k < K - i * TK)[None, :], other=0.0)
            b = tl.load(right + i * TK, mask=(k < K - i * TK)[None, :], other=0.0)
            total += tl.dot(a, b.T)
        tl.store(y + rows[:, None] * N1 + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N1)[None, :])
    else:
        n -= tiles
        columns = n * TN + tl.arange(0, TN)
        right = other + (columns % N2)[:, None] * K + k[None, :]
        for i in range(tl.cdiv(K, TK)):
            a = tl.load(left + i * TK, mask=(rows < M)[:, None] & (k < K - i * TK)[None, :], other=0.0)
            b = tl.load(right + i * TK, mask=(k < K - i * TK)[None, :], other=0.0)
            total += tl.dot(a, b.T)
        tl.store(z + rows[:, None] * N2 + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N2)[None, :])
