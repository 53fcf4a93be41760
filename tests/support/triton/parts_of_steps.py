"""Products whose programs share the steps along K without a mask, and whose descriptors are read at a counted number."""

# pyright: basic
import triton
import triton.language as tl


@triton.jit
def shared_steps(x, w, y, M, N, K, PARTS, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Each part begins at its own step, and ends with it or with K; y holds the sums of the parts."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    part = tl.program_id(2)
    per_part = tl.cdiv(tl.cdiv(K, TK), PARTS)
    first = part * per_part
    k = tl.arange(0, TK)
    x_at = x + (rows % M)[:, None] * K + k[None, :] + first * TK
    w_at = w + (columns % N)[None, :] * K + k[:, None] + first * TK
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range(first, tl.minimum(first + per_part, tl.cdiv(K, TK))):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += TK
        w_at += TK
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + part * M * N + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def steps_by_remainder(x, w, y, M, N, K, PARTS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """One number of programs: its remainder is the part, which takes every PARTS-th step. y holds the sums of the parts."""
    part = tl.program_id(0) % PARTS
    tile_n = tl.program_id(0) // PARTS
    rows = tl.program_id(1) * TM + tl.arange(0, TM)
    columns = tile_n * TN + tl.arange(0, TN)
    k = part * TK + tl.arange(0, TK)
    x_at = x + (rows % M)[:, None] * K + k[None, :]
    w_at = w + (columns % N)[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range(tl.cdiv(K, TK * PARTS)):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += TK * PARTS
        w_at += TK * PARTS
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + part * M * N + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def counted_parts(
    x, w, y, M, N, K, PARTS: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """One number of programs: its remainder is the part, whose loop counts the steps of all parts. A part may have none."""
    program = tl.program_id(0)
    part, tile_n = program % PARTS, program // PARTS
    rows = tl.program_id(1) * TM + tl.arange(0, TM)
    columns = tile_n * TN + tl.arange(0, TN)
    if part * STEPS * TK < K:
        k = part * STEPS * TK + tl.arange(0, TK)
        x_at = x + (rows % M)[:, None] * K + k[None, :]
        w_at = w + (columns % N)[None, :] * K + k[:, None]
        total = tl.zeros((TM, TN), tl.float32)
        for _ in range(part * STEPS, (part + 1) * STEPS):
            total += tl.dot(tl.load(x_at), tl.load(w_at))
            x_at += TK
            w_at += TK
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        tl.atomic_add(y + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def parts_to_an_end(
    x, w, y, M, N, K, PARTS: tl.constexpr, SIZE: tl.constexpr, TILES: tl.constexpr,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr,
):  # fmt: skip
    """Programs in another order, by eights; the last part ends at K. y holds the sums of the parts."""
    program = tl.program_id(0)
    eighth = (TILES + 7) // 8
    longer = (TILES - 1) % 8 + 1
    group, number = program % 8, program // 8
    if group < longer:
        program = group * eighth + number
    else:
        program = longer * eighth + (group - longer) * (eighth - 1) + number
    part, tile = program % PARTS, program // PARTS
    tiles_n = tl.cdiv(N, TN)
    rows, columns = tile // tiles_n * TM + tl.arange(0, TM), tile % tiles_n * TN + tl.arange(0, TN)
    first = part * SIZE
    if first < K:
        k = first + tl.arange(0, TK)
        x_at = x + (rows % M)[:, None] * K + k[None, :]
        w_at = w + (columns % N)[None, :] * K + k[:, None]
        total = tl.zeros((TM, TN), tl.float32)
        left = tl.minimum(first + SIZE, K) - first
        for _ in range(tl.cdiv(left, TK)):
            total += tl.dot(tl.load(x_at), tl.load(w_at))
            x_at += TK
            w_at += TK
        inside = (rows < M)[:, None] & (columns < N)[None, :]
        tl.store(y + part * M * N + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def loaded_steps(x, w, steps, y, M, N, K, MOST, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """The number of steps is loaded, and at most MOST."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    k = tl.arange(0, TK)
    x_at = x + (rows % M)[:, None] * K + k[None, :]
    w_at = w + (columns % N)[None, :] * K + k[:, None]
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range(tl.minimum(tl.load(steps), MOST)):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += TK
        w_at += TK
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(y + rows[:, None] * N + columns[None, :], total, mask=inside)


@triton.jit
def counted_columns(x, w, scale, y, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Columns are counted beside the steps. A scale for each step keeps the kernel from being a product."""
    m, n = tl.program_id(0) * TM, tl.program_id(1) * TN
    total = tl.zeros((TM, TN), tl.float32)
    column = 0
    for step in range(tl.cdiv(K, TK)):
        a = x.load([m, column])
        b = w.load([n, column])
        total += tl.dot(a, b.T) * tl.load(scale + step)
        column += TK
    rows, columns = m + tl.arange(0, TM), n + tl.arange(0, TN)
    tl.store(y + rows[:, None] * N + columns[None, :], total, mask=(rows < M)[:, None] & (columns < N)[None, :])


@triton.jit
def steps_by_turns(
    x, w, y, M, N, K, PARTS, ROUND, stride_k, WRAPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Each part takes a step in each round of ROUND columns of a weight [K, N]. Without masks: rows, and columns, begin again."""
    part, tile_n = tl.program_id(0) % PARTS, tl.program_id(0) // PARTS
    to_rows = tl.program_id(1) * TM + tl.arange(0, TM)
    to_columns = tile_n * TN + tl.arange(0, TN)
    rows, columns = to_rows % M, to_columns % N
    k = part * TK + tl.arange(0, TK)
    if WRAPS:
        k = k % K
    x_at = x + rows[:, None] * K + k[None, :]
    w_at = w + k[:, None] * stride_k + columns[None, :]
    total = tl.zeros((TM, TN), tl.float32)
    for _ in range(tl.cdiv(K, ROUND)):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += ROUND
        w_at += ROUND * stride_k
    tl.store(y + part * M * N + to_rows[:, None] * N + to_columns[None, :], total)
