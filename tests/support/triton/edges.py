"""Kernels at the edges of what is read of sparse tensors: what they compute of dense arrays is right, or the call is refused."""

import triton
import triton.language as tl


@triton.jit
def part_of_k(
    a, b, c, M, N, K, START, STOP, LEFT, RIGHT, SHIFT,
    STEP: tl.constexpr, MASKED: tl.constexpr, OTHER: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Columns from START to STOP: those of a that are SHIFT further and below LEFT, times rows of b below RIGHT."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(START, STOP, STEP):
        k = first + tl.arange(0, BK)
        if MASKED:
            inside = (m[:, None] < M) & ((k + SHIFT)[None, :] < LEFT)
        else:
            inside = m[:, None] < M
        left = tl.load(a + m[:, None] * K + (k + SHIFT)[None, :], mask=inside, other=OTHER)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < RIGHT) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def pitched(a, b, c, M, N, K, stride_m, stride_k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        inside = (m[:, None] < M) & (k[None, :] < K)
        left = tl.load(a + m[:, None] * stride_m + k[None, :] * stride_k, mask=inside, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def sums(
    a, b, c, where, M, N, K, FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Sparse tiles and their sums, in the form that FORM names."""
    tile = tl.program_id(0)
    if FORM == "last tile first":
        tile = tl.cdiv(M, BM) - 1 - tile
    m = tile * BM + tl.arange(0, BM)
    row = m
    if FORM == "rows from memory":
        row = tl.load(where + m, mask=m < M, other=0)
    if FORM == "a row from memory":
        row = tl.load(where + tile) + tl.arange(0, BM)
    if FORM == "a tile from memory":
        row = tl.load(where + tile) * BM + tl.arange(0, BM)
    if FORM == "the last row again":
        row = tl.minimum(m, M - 1)
    end = K
    if FORM == "a length from memory":
        end = tl.load(where + tile)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    if FORM == "from one":
        total += 1.0
    for first in range(0, end, BK):
        k = first + tl.arange(0, BK)
        read = k
        if FORM == "columns from memory":
            read = tl.load(where + k, mask=k < K, other=0)
        if FORM == "steps from memory":
            read = tl.load(where + first // BK) * BK + tl.arange(0, BK)
        left = tl.load(a + row[:, None] * K + read[None, :], mask=(row[:, None] < M) & (read[None, :] < end), other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        if FORM == "scaled":
            left = (left * 2.0).to(tl.float16)
        if FORM == "summed":
            total += tl.sum(left.to(tl.float32), 1)[:, None]
        if FORM == "there and back":
            left = left.to(tl.float32).to(tl.float16)
        if FORM == "times itself":
            total += tl.dot(left, left.T)
        elif FORM == "turned":
            total += tl.dot(right.T, left.T).T
        elif FORM == "decaying":
            total = total * 0.5 + tl.dot(left, right)
        elif FORM == "taken away":
            total -= tl.dot(left, right)
        elif FORM == "the last one":
            total = tl.dot(left, right)
        elif FORM == "some steps":
            if first != BK:
                total += tl.dot(left, right)
        else:
            total = tl.dot(left, right, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    if FORM == "below the diagonal":
        inside = inside & (m[:, None] >= n[None, :])
    at = m[:, None]
    if FORM == "upside down":
        at = M - 1 - m[:, None]
    tl.store(c + at * N + n[None, :], total, mask=inside)


@triton.jit
def entries(
    a, b, c, where, E, M, N, K, L, stride_a, FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """c[i] = a[e]·b[i] with e in many forms."""
    number = tl.program_id(2)
    entry = number
    if FORM == "from the last":
        entry = E - 1 - number
    if FORM == "from memory":
        entry = tl.load(where + number)
    if FORM == "in groups":
        entry = number // L
    if FORM == "in turns":
        entry = number % L
    if FORM == "every other":
        entry = number * 2
    if FORM == "from L on":
        entry = number + L
    if FORM == "but the first":
        entry = number + 1
    if FORM == "up to L":
        entry = tl.minimum(number, L)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + entry * stride_a + m[:, None] * K + k[None, :]
    if FORM == "counted by rows":
        lefts = a + (entry * M + m)[:, None] * K + k[None, :]
    if FORM == "wrapped in all rows":
        lefts = a + ((entry * M + m) % (E * M))[:, None] * K + k[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = (m[:, None] < M) & (first + k[None, :] < K)
        if FORM == "unmasked columns":
            inside = m[:, None] < M
        if FORM == "wrapped in all rows":
            inside = first + k[None, :] < K
        left = tl.load(lefts, mask=inside, other=0.0)
        rows = first + k[:, None]
        right = tl.load(b + (number * K + rows) * N + n[None, :], mask=(rows < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        lefts += BK
    tl.store(c + (number * M + m[:, None]) * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def wrapped(a, b, c, out, w, M, N, K, FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows and columns that wrap, and who sees the sums. out: has room for whole tiles."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + (m % M)[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        right = tl.load(b + k[:, None] * N + (n % N)[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(left, right, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    if FORM == "sums of rows":
        tl.store(out + m, tl.sum(tl.where(n[None, :] < N, total, 0.0), 1), mask=m < M)
    elif FORM == "sums of columns":
        tl.store(out + tl.program_id(0) * BN + n, tl.sum(total, 0), mask=n < N)
    elif FORM == "a second dot":
        mix = tl.load(w + n[:, None] * BN + n[None, :])
        tl.store(c + at, tl.dot(total.to(tl.float16), mix), mask=inside)
    elif FORM == "a dot along the rows":
        mix = tl.load(w + tl.arange(0, BM)[:, None] * BN + n[None, :])
        tl.store(out + n[:, None] * BN + n[None, :], tl.dot(total.T.to(tl.float16), mix))
    elif FORM == "sums in memory":
        tl.atomic_add(out + at, total, mask=inside)
    elif FORM == "sums in memory, more rows":
        tl.atomic_add(out + at, total, mask=(m[:, None] < M + 4) & (n[None, :] < N))
    elif FORM == "sums in memory, wrapped":
        tl.atomic_add(out + (m % M)[:, None] * N + n[None, :], total, mask=n[None, :] < N)
    elif FORM == "transposed":
        tl.store(c + n[:, None] * M + m[None, :], total.T, mask=(m[None, :] < M) & (n[:, None] < N))
    elif FORM == "transposed, unmasked":
        tl.store(out + n[:, None] * 2 * BM + m[None, :], total.T, mask=n[:, None] < N)
    elif FORM == "a descriptor":
        tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN]).store([tl.program_id(0) * BM, 0], total)
    elif FORM == "a descriptor of more rows":
        tl.make_tensor_descriptor(out, [2 * BM, N], [N, 1], [BM, BN]).store([tl.program_id(0) * BM, 0], total)
    elif FORM == "a descriptor further up":
        tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN]).store([tl.program_id(0) * BM - 8, 0], total)
    elif FORM == "at most":
        tl.store(c + at, total, mask=(m[:, None] <= M - 1) & (n[None, :] < N))
    elif FORM == "more rows":
        tl.store(out + at, total, mask=(m[:, None] < M + 4) & (n[None, :] < N))
    elif FORM == "either":
        tl.store(out + at, total, mask=(m[:, None] < M) | (n[None, :] < 8))
    elif FORM == "a branch":
        if tl.program_id(0) == 0:
            tl.store(c + at, total, mask=inside)
        else:
            tl.store(c + at, total * 2, mask=inside)


@triton.jit
def blocks(a, b, c, M, N, K, L, FORM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Block pointers to parts of a, moved ones, and those that check too little."""
    row = tl.program_id(0) * BM
    start, depth, from_row, from_column = a, K, row, 0
    if FORM == "rows above":
        from_row = row - 16
    if FORM == "columns before":
        from_column = -BK
    if FORM == "columns from L on":
        from_column = L
    if FORM == "moved":
        start = a + L
    if FORM == "L columns":
        depth = L
    lefts = tl.make_block_ptr(start, (M, depth), (K, 1), (from_row, from_column), (BM, BK), (1, 0))
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        if FORM == "unchecked":
            left = tl.load(lefts)
            right = tl.load(b + k[:, None] * N + n[None, :], mask=n[None, :] < N, other=0.0)
        else:
            left = tl.load(lefts, boundary_check=(0, 1), padding_option="zero")
            right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        if FORM == "half steps":
            lefts = tl.advance(lefts, (0, BK // 2))
        else:
            lefts = tl.advance(lefts, (0, BK))
    m = row + tl.arange(0, BM)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def descriptors(
    a, b, c, M, N, K, L, ROWS: tl.constexpr, COLUMNS: tl.constexpr, FORM: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Tiles ROWS and COLUMNS further than those of the result, L times."""
    row = tl.program_id(0) * BM
    start, height, depth = a, M, K
    if FORM == "moved":
        start = a + L * K
    if FORM == "L rows":
        height = L
    if FORM == "L columns":
        depth = L
    tiles = tl.make_tensor_descriptor(start, [height, depth], [K, 1], [BM, BK])
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tiles.load([row + ROWS * L, first + COLUMNS * L])
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    m = row + tl.arange(0, BM)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def moved_left(a, b, c, M, N, K, FLOORED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows from the 16th on, whose first step begins 64 columns before them."""
    m = tl.program_id(0) * BM + 16 + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        inside = (m[:, None] < M) & (k[None, :] - 64 < K)
        if FLOORED:
            inside = inside & (k[None, :] - 64 >= 0)
        left = tl.load(a + m[:, None] * K + (k[None, :] - 64), mask=inside, other=0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def turned_blocks(
    a, b, c, M, N, K, L, FORM: tl.constexpr, NORMED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """b [K, N] is sparse along K, and read through a block pointer: moved, of another size, and with too few checks."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    start, width, depth = b, N, K
    if FORM == "moved":
        start = b + L
    if FORM == "L columns":
        width = L
    if FORM == "L rows":
        depth = L
    lefts = tl.make_block_ptr(a, (M, K), (K, 1), (row, 0), (BM, BK), (1, 0))
    rights = tl.make_block_ptr(start, (depth, width), (N, 1), (0, column), (BK, BN), (1, 0))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        left = tl.load(lefts, boundary_check=(0, 1), padding_option="zero")
        if FORM == "unchecked":
            right = tl.load(rights)
        elif FORM == "rows unchecked":
            right = tl.load(rights, boundary_check=(1,), padding_option="zero")
        else:
            right = tl.load(rights, boundary_check=(0, 1), padding_option="zero")
        total = tl.dot(left, right, total)
        lefts = tl.advance(lefts, (0, BK))
        rights = tl.advance(rights, (BK, 0))
    if NORMED:
        total = total / (1.0 + tl.sum(tl.abs(total), 1)[:, None])
    out = tl.make_block_ptr(c, (M, N), (N, 1), (row, column), (BM, BN), (1, 0))
    tl.store(out, total, boundary_check=(0, 1))
