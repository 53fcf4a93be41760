"""One dot of the whole rank, without a loop over K, to which a tile from memory is added."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def added_once(y, x, w, base, M, N, BM: tl.constexpr, BN: tl.constexpr, R: tl.constexpr):
    """y = relu(x) · wᵀ + base. x [M, R], w [N, R] sparse, base and y [M, N]. A program a tile."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    ranks, inside = tl.arange(0, R), (rows[:, None] < M) & (columns[None, :] < N)
    left = tl.load(x + rows[:, None] * R + ranks[None, :], mask=rows[:, None] < M, other=0.0)
    left = tl.maximum(left, 0.0)
    right = tl.load(w + columns[None, :] * R + ranks[:, None], mask=columns[None, :] < N, other=0.0)
    places = rows[:, None] * N + columns[None, :]
    total = tl.dot(left, right) + tl.load(base + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + places, total.to(tl.float16), mask=inside)


@triton.jit
def added_in_turn(y, x, w, base, M, N, BM: tl.constexpr, BN: tl.constexpr, R: tl.constexpr):
    """The same. A program has all columns of its rows, and stores in each step."""
    rows, ranks = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, R)
    left = tl.load(x + rows[:, None] * R + ranks[None, :], mask=rows[:, None] < M, other=0.0)
    left = tl.maximum(left, 0.0)
    for first in range(0, N, BN):
        columns = first + tl.arange(0, BN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        right = tl.load(w + columns[:, None] * R + ranks[None, :], mask=columns[:, None] < N, other=0.0)
        places = rows[:, None] * N + columns[None, :]
        total = tl.dot(left, tl.trans(right)) + tl.load(base + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + places, total.to(tl.float16), mask=inside)
