"""Triton kernels that warpgroup products cannot do: small tiles, several dots, reductions, branches, sums in memory."""

import triton
import triton.language as tl


@triton.jit
def small_dot(d, a, b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    left = tl.load(a + m[:, None] * BK + k[None, :], mask=m[:, None] < BM, other=0.0)
    right = tl.load(b + k[:, None] * BN + n[None, :])
    tl.store(d + m[:, None] * BN + n[None, :], tl.dot(left, right).to(d.dtype.element_ty))


@triton.jit
def any_dot(
    d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr, ZERO: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    if SUM == "int32":
        total = tl.zeros((BM, BN), dtype=tl.int32)
    elif SUM == "fp16":
        total = tl.zeros((BM, BN), dtype=tl.float16)
    else:
        total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=ZERO)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=ZERO)
        total = tl.dot(left, right, total, out_dtype=total.dtype)
    tl.store(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def right_sparse(d, x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    weights = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(rows.load([row, k]), weights.load([column, k]).T, total)
    m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(d + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def scaled_operand(d, a, b, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        by = tl.load(scale + k, mask=k < K, other=0.0)
        total += tl.dot(left, (right * by[:, None]).to(tl.float16))
    tl.store(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def two_dots(d, e, a, b, c, bias, flag, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """d = (a·b + bias if asked for) · c, e = (a·b)ᵀ: a chained dot, a branch, two stores."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.arange(0, BN), tl.arange(0, BK)
    left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
    right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
    total = tl.dot(left, right)
    tl.store(e + n[:, None] * M + m[None, :], total.T, mask=(n[:, None] < N) & (m[None, :] < M))
    if flag > 0:
        total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    mix = tl.load(c + n[:, None] * N + n[None, :], mask=(n[:, None] < N) & (n[None, :] < N), other=0.0)
    total = tl.dot(total.to(tl.float16), mix)
    tl.store(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def softmax_dot(d, top, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of a·b as probabilities, and where each row is greatest."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    total = tl.where(n[None, :] < N, total, float("-inf"))
    high = tl.max(total, 1)
    power = tl.exp(total - high[:, None])
    share = power / tl.sum(power, 1)[:, None]
    tl.store(d + m[:, None] * N + n[None, :], share, mask=(m[:, None] < M) & (n[None, :] < N))
    tl.store(top + m, tl.argmax(total, 1), mask=m < M)


@triton.jit
def split_sums(d, a, b, M, N, K, SPLIT, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(tl.program_id(2) * BK, K, SPLIT * BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right)
    tl.atomic_add(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def persistent(d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        m = tile // tiles_n * BM + tl.arange(0, BM)
        n = tile % tiles_n * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            left = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
            right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
            total = tl.dot(left, right, total)
        tl.store(d + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def attention(out, q, k, v, scale, LENGTH, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    """softmax(q·kᵀ)·v with running maxima and sums, both dots in the loop."""
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    w = tl.arange(0, WIDTH)
    query = tl.load(q + m[:, None] * WIDTH + w[None, :], mask=m[:, None] < LENGTH, other=0.0)
    high = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, WIDTH), tl.float32)
    for first in range(0, LENGTH, COLUMNS):
        n = first + tl.arange(0, COLUMNS)
        key = tl.load(k + n[None, :] * WIDTH + w[:, None], mask=n[None, :] < LENGTH, other=0.0)
        score = tl.dot(query, key) * scale
        score = tl.where(n[None, :] < LENGTH, score, float("-inf"))
        new = tl.maximum(high, tl.max(score, 1))
        power = tl.exp(score - new[:, None])
        by = tl.exp(high - new)
        sums = sums * by + tl.sum(power, 1)
        value = tl.load(v + n[:, None] * WIDTH + w[None, :], mask=n[:, None] < LENGTH, other=0.0)
        total = total * by[:, None] + tl.dot(power.to(tl.float16), value)
        high = new
    tl.store(out + m[:, None] * WIDTH + w[None, :], total / sums[:, None], mask=m[:, None] < LENGTH)


@triton.jit
def column_sums(out, least, x, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Sums and minima along the first axis, and the whole tile's maximum: reductions that go across warps."""
    m, n = tl.arange(0, BM), tl.arange(0, BN)
    tile = tl.load(x + m[:, None] * N + n[None, :], mask=(m[:, None] < M) & (n[None, :] < N), other=0.0)
    tl.store(out + n, tl.sum(tile, 0), mask=n < N)
    tl.store(least + n, tl.min(tile, 0), mask=n < N)
    tl.store(least + N, tl.max(tl.max(tile, 0), 0))


@triton.jit
def elementwise(out, bits, x, y, SIZE, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < SIZE
    a = tl.load(x + at, mask=inside, other=1.0).to(tl.float32)
    b = tl.load(y + at, mask=inside, other=7)
    c = tl.where(b % 3 == 0, a * 2.0, tl.exp(a)) - tl.minimum(a, b.to(tl.float32))
    c = tl.fma(c, a, 1.5) + tl.abs(a)
    tl.store(out + at, c.to(tl.float16), mask=inside)
    tl.store(bits + at, (b << 2) ^ (b >> 1) | (b // 5).to(tl.int8).to(tl.int32), mask=inside)


@triton.jit
def work_queue(out, next_tile, TILES, BLOCK: tl.constexpr):
    """Programs take tiles until none is left: a while loop over an atomic counter."""
    tile = tl.atomic_add(next_tile, 1)
    while tile < TILES:
        at = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, at * 3 + tile)
        tile = tl.atomic_add(next_tile, 1)


@triton.jit
def pointer_loop(out, x, STEPS, ROW, BLOCK: tl.constexpr):
    """Carried pointers, a value that changes places with another, and a store that a later load sees."""
    at = tl.arange(0, BLOCK)
    rows = x + at
    one, other = tl.zeros((BLOCK,), tl.float32), tl.full((BLOCK,), 1.0, tl.float32)
    for step in range(STEPS):
        value = tl.load(rows)
        one, other = other + value, one
        if step % 2 == 0:
            one = one * 0.5
        rows += ROW
    tl.store(out + at, one)
    tl.store(out + BLOCK + at, tl.load(out + (BLOCK - 1 - at)) + other)


@triton.jit
def counted_dots(d, reached, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A while loop that counts, whose counter is used behind it."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    k = 0
    while k < K:
        at = k + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        right = tl.load(b + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        k += BK
    tl.store(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))
    tl.store(reached + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), k)
