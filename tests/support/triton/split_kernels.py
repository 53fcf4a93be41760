"""Kernels that share K among programs, whose sums meet in memory, as users write them; and one that adds its whole tile."""

import triton
import triton.language as tl


@triton.jit
def split_rounds(
    d, a, b, M, N, K, stride_a, stride_b, stride_d,
    SPLIT: tl.constexpr, MASKED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Tiles along x, parts of K along y: every SPLIT-th step, by pointers that the loop moves."""
    program, part = tl.program_id(0), tl.program_id(1)
    columns = tl.cdiv(N, BN)
    m = program // columns * BM + tl.arange(0, BM)
    n = program % columns * BN + tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    left = a + (m % M)[:, None] * stride_a + k[None, :]
    right = b + k[:, None] * stride_b + (n % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for rest in range(K, 0, -BK * SPLIT):
        if MASKED:
            one = tl.load(left, mask=k[None, :] < rest, other=0.0)
            two = tl.load(right, mask=k[:, None] < rest, other=0.0)
        else:
            one, two = tl.load(left), tl.load(right)
        total += tl.dot(one, two)
        left += BK * SPLIT
        right += BK * SPLIT * stride_b
    at = d + m[:, None] * stride_d + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    if SPLIT == 1:
        tl.store(at, total, mask=inside)
    else:
        tl.atomic_add(at, total, mask=inside, sem="relaxed")


@triton.jit
def split_steps(
    d, a, b, M, N, K, parts, stride_a, stride_b, stride_d,
    COUNTED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Programs share K: as many as an argument says, or the grid."""
    part = tl.program_id(2)
    share = parts if COUNTED else tl.num_programs(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (m < M)[:, None] & (n < N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for first in range(part * BK, K, BK * share):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_a + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0)
        right = tl.load(b + n[None, :] * stride_b + k[:, None], mask=(k < K)[:, None] & (n < N)[None, :], other=0)
        total = tl.dot(left, right, total, out_dtype=tl.int32)
    tl.atomic_add(d + m[:, None] * stride_d + n[None, :], total, mask=inside)


@triton.jit
def split_chunks(
    d, x, w, M, N, K, chunk, stride_x, stride_w, stride_d, scale,
    ENDED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A layer: each program sums the columns of one chunk. ENDED: masked by the chunk's own end."""
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    start = tl.program_id(2) * chunk
    end = min(start + chunk, K)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(start, end, BK):
        k = first + tl.arange(0, BK)
        inside = k < (end if ENDED else K)
        one = tl.load(x + m[:, None] * stride_x + k[None, :], mask=(m < M)[:, None] & inside[None, :], other=0.0)
        two = tl.load(w + n[None, :] * stride_w + k[:, None], mask=(n < N)[None, :] & inside[:, None], other=0.0)
        total = tl.dot(one, two, total)
    result = (total * scale).to(d.dtype.element_ty)
    tl.atomic_add(d + m[:, None] * stride_d + n[None, :], result, mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def split_shares(
    d, a, b, M, N, K, stride_a, stride_b, stride_d,
    SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """All steps of K shared out, by descriptors."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    steps = tl.cdiv(K, BK)
    share = tl.cdiv(steps, SPLIT)
    first = tl.program_id(2) * share
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(first, min(first + share, steps)):
        total = tl.dot(a_tiles.load([row, step * BK]), b_tiles.load([column, step * BK]).T, total)
    d_tiles.atomic_add([row, column], total.to(d.dtype.element_ty))


@triton.jit
def added_tiles(
    d, a, b, bias, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """No program shares K with another one, so that anything may be computed before it is added."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [K, N], [stride_b, 1], [BK, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, k]), b_tiles.load([k, column]), total)
    m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.maximum(total + tl.load(bias + n, mask=n < N, other=0.0)[None, :], 0.0)
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.atomic_add(d + m[:, None] * stride_d + n[None, :], total.to(d.dtype.element_ty), mask=inside)
