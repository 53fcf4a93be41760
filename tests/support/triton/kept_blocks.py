"""A kernel that reads blocks of a matrix, one below the other, in the order of a list."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def kept_blocks(
    x, blocks, y, begins, places, M, K, stride_x, stride_b, SIZE: tl.constexpr, TM: tl.constexpr, TK: tl.constexpr
):  # fmt: skip
    """x times a matrix of blocks [SIZE, SIZE], of which each column of blocks has the next ones, at loaded places along K."""
    column = tl.program_id(1)
    m, n, k = tl.program_id(0) * TM + tl.arange(0, TM), tl.arange(0, SIZE), tl.arange(0, TK)
    begin, end = tl.load(begins + column), tl.load(begins + column + 1)
    steps = tl.cdiv(SIZE, TK)
    total = tl.zeros((TM, SIZE), tl.float32)
    for i in range(steps * (end - begin)):
        step, number = i % steps, begin + i // steps
        at = tl.load(places + number) * SIZE + step * TK + k
        a = tl.load(x + m[:, None] * stride_x + at[None, :], mask=(m < M)[:, None], other=0.0)
        b = tl.load(blocks + number * SIZE * SIZE + step * TK + n[None, :] * stride_b + k[:, None])
        total += tl.dot(a, b)
    columns = tl.num_programs(1) * SIZE
    tl.store(y + m[:, None] * columns + (column * SIZE + n)[None, :], total, mask=(m < M)[:, None])
