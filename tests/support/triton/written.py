"""Kernels in the styles that people write them in: one matrix times another, by pointers, descriptors and masks of all sorts."""

import triton
import triton.language as tl


@triton.jit
def static_range(
    c, a, b, M, N, stride_am, stride_bk, stride_cm,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in tl.static_range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=n[None, :] < N, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def gelu_layer(
    x, w, bias, y, M, N, K, stride_x, stride_w, stride_y,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    xs = x + (m % M)[:, None] * stride_x + k[None, :]
    ws = w + (n % N)[None, :] * stride_w + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(K, 0, -BK):
        if EVEN_K:
            x_tile = tl.load(xs)
            w_tile = tl.load(ws)
        else:
            x_tile = tl.load(xs, mask=k[None, :] < first, other=0.0)
            w_tile = tl.load(ws, mask=k[:, None] < first, other=0.0)
        total += tl.dot(x_tile, w_tile)
        xs += BK
        ws += BK
    if HAS_BIAS:
        bias_tile = tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)
        total += bias_tile[None, :]
    inner = total * 0.7978845608 * (1.0 + 0.044715 * total * total)
    total = 0.5 * total * (1.0 + (2.0 * tl.sigmoid(2.0 * inner) - 1.0))
    tl.store(
        y + m[:, None] * stride_y + n[None, :], total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def scaled_product(
    a, b, c, scale_a, scale_b, M, N, K, stride_am, stride_bn, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    tile_m, tile_n = program // tiles_n, program % tiles_n
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + m[:, None] * stride_am + k[None, :]
    rights = b + n[None, :] * stride_bn + k[:, None]
    total = tl.zeros((BM, BN), dtype=SUM)
    for step in range(tl.cdiv(K, BK)):
        inside_k = k < K - step * BK
        left = tl.load(lefts, mask=(m < M)[:, None] & inside_k[None, :], other=0.0)
        right = tl.load(rights, mask=inside_k[:, None] & (n < N)[None, :], other=0.0)
        total = tl.dot(left, right, total, out_dtype=SUM)
        lefts += BK
        rights += BK
    by_a = tl.load(scale_a + m, mask=m < M, other=0.0)
    by_b = tl.load(scale_b + n, mask=n < N, other=0.0)
    result = total.to(tl.float32) * by_a[:, None] * by_b[None, :]
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], result.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


@triton.jit
def tile_of(tile, tiles_n, tiles_m, GROUP: tl.constexpr):
    of_group = GROUP * tiles_n
    first = tile // of_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, (tile % of_group) // rows


@triton.jit
def persistent_pointers(
    a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    k = tl.arange(0, BK)
    for tile in tl.range(start, tiles_m * tiles_n, PROGRAMS, flatten=True):
        tile_m, tile_n = tile_of(tile, tiles_n, tiles_m, GROUP)
        m = tile_m * BM + tl.arange(0, BM)
        n = tile_n * BN + tl.arange(0, BN)
        m = tl.where(m < M, m, 0)
        n = tl.where(n < N, n, 0)
        m = tl.max_contiguous(tl.multiple_of(m, BM), BM)
        n = tl.max_contiguous(tl.multiple_of(n, BN), BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            k_now = step * BK + tl.arange(0, BK)
            lefts = a + (m[:, None] * stride_am + k_now[None, :] * stride_ak)
            rights = b + (k_now[:, None] * stride_bk + n[None, :] * stride_bn)
            left = tl.load(lefts, mask=k[None, :] < K - step * BK, other=0.0)
            right = tl.load(rights, mask=k[:, None] < K - step * BK, other=0.0)
            total = tl.dot(left, right, total)
        m = tile_m * BM + tl.arange(0, BM)
        n = tile_n * BN + tl.arange(0, BN)
        tl.store(
            c + stride_cm * m[:, None] + stride_cn * n[None, :],
            total.to(c.dtype.element_ty),
            mask=(m[:, None] < M) & (n[None, :] < N),
        )


@triton.jit
def persistent_descriptors(
    a_tiles, b_tiles, c_tiles, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    steps = tl.cdiv(K, BK)
    stored = start - PROGRAMS
    for tile in tl.range(start, tiles_m * tiles_n, PROGRAMS, flatten=True):
        tile_m, tile_n = tile_of(tile, tiles_n, tiles_m, GROUP)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            left = a_tiles.load([tile_m * BM, step * BK])
            right = b_tiles.load([tile_n * BN, step * BK])
            total = tl.dot(left, right.T, total)
        stored += PROGRAMS
        tile_m, tile_n = tile_of(stored, tiles_n, tiles_m, GROUP)
        halves = tl.reshape(total, (BM, 2, BN // 2))
        halves = tl.permute(halves, (0, 2, 1))
        low, high = tl.split(halves)
        c_tiles.store([tile_m * BM, tile_n * BN], low.to(tl.float16))
        c_tiles.store([tile_m * BM, tile_n * BN + BN // 2], high.to(tl.float16))


@triton.jit
def gate_up(
    x, gate, up, y, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    xs = x + m[:, None] * stride_x + k[None, :]
    weights = n[None, :] * stride_w + k[:, None]
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside_k = first + k < K
        x_tile = tl.load(xs + first, mask=(m < M)[:, None] & inside_k[None, :], other=0.0)
        gate_tile = tl.load(gate + weights + first, mask=(n < N)[None, :] & inside_k[:, None], other=0.0)
        up_tile = tl.load(up + weights + first, mask=(n < N)[None, :] & inside_k[:, None], other=0.0)
        one = tl.dot(x_tile, gate_tile, one)
        two = tl.dot(x_tile, up_tile, two)
    result = one * tl.sigmoid(one) * two
    tl.store(
        y + m[:, None] * stride_y + n[None, :], result.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


@triton.jit
def gate_up_packed(
    x, w, y, M, N, K, stride_x, stride_w, stride_y, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    xs = x + m[:, None] * stride_x + k[None, :]
    gates = w + n[None, :] * stride_w + k[:, None]
    ups = w + (n + N)[None, :] * stride_w + k[:, None]
    one = tl.zeros((BM, BN), dtype=tl.float32)
    two = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        inside_x = k[None, :] < K - step * BK
        inside_w = (k[:, None] < K - step * BK) & (n < N)[None, :]
        x_tile = tl.load(xs, mask=(m < M)[:, None] & inside_x, other=0.0)
        one = tl.dot(x_tile, tl.load(gates, mask=inside_w, other=0.0), one)
        two = tl.dot(x_tile, tl.load(ups, mask=inside_w, other=0.0), two)
        xs += BK
        gates += BK
        ups += BK
    result = one * tl.sigmoid(one) * two
    tl.store(
        y + m[:, None] * stride_y + n[None, :], result.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :]
    )


@triton.jit
def scaled_and_added(
    a, b, c, d, alpha, beta, M, N, K, stride_am, stride_bk, stride_cm, stride_dm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    inside = (m[:, None] < M) & (n[None, :] < N)
    c_tile = tl.load(c + m[:, None] * stride_cm + n[None, :], mask=inside, other=0.0)
    tl.store(
        d + m[:, None] * stride_dm + n[None, :],
        (alpha * total + beta * c_tile.to(tl.float32)).to(tl.float16),
        mask=inside,
    )


@triton.jit
def peeled_tail(
    a, b, c, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    lefts = a + (m % M)[:, None] * stride_am + k[None, :]
    rights = b + k[:, None] * stride_bk + (n % N)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(K // BK):
        total = tl.dot(tl.load(lefts), tl.load(rights), total)
        lefts += BK
        rights += BK * stride_bk
    left_over = K % BK
    if left_over > 0:
        left = tl.load(lefts, mask=k[None, :] < left_over, other=0.0)
        right = tl.load(rights, mask=k[:, None] < left_over, other=0.0)
        total = tl.dot(left, right, total)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def swizzled(
    a, b, c, M, N, K, stride_am, stride_bn, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    tile_m, tile_n = tl.swizzle2d(tile_m, tile_n, tl.num_programs(0), tl.num_programs(1), GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        left = tl.load(
            a + m[:, None] * stride_am + (first + k)[None, :],
            mask=(m[:, None] < M) & ((first + k)[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + n[:, None] * stride_bn + (first + k)[None, :],
            mask=(n[:, None] < N) & ((first + k)[None, :] < K),
            other=0.0,
        )
        total = tl.dot(left, tl.trans(right), total)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def row_maxima(
    a, b, c, highest, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(highest + m, tl.max(tl.where(n[None, :] < N, total, -float("inf")), axis=1), mask=m < M)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def dequantized(
    a, b, scale, c, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    by = tl.load(scale + n, mask=n < N, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        right_scaled = (right.to(tl.float32) * by[None, :]).to(tl.float16)
        total = tl.dot(left, right_scaled, total)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def wide_offsets(
    a, b, c, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    m = tile_m * BM + tl.arange(0, BM).to(tl.int64)
    n = tile_n * BN + tl.arange(0, BN).to(tl.int64)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_am + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * stride_bk + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(
        c + m[:, None] * stride_cm + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


@triton.jit
def turned_layer(
    x, w, y, M, N, K, stride_x, stride_w, stride_y, stride_yn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BN, BM), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        x_tile = tl.load(
            x + m[None, :] * stride_x + (step * BK + k)[:, None],
            mask=(m[None, :] < M) & ((step * BK + k)[:, None] < K),
            other=0.0,
        )
        w_tile = tl.load(
            w + n[:, None] * stride_w + (step * BK + k)[None, :],
            mask=(n[:, None] < N) & ((step * BK + k)[None, :] < K),
            other=0.0,
        )
        total = tl.dot(w_tile, x_tile, total)
    tl.store(
        y + m[:, None] * stride_y + n[None, :] * stride_yn,
        total.T.to(y.dtype.element_ty),
        mask=(m[:, None] < M) & (n[None, :] < N),
    )


@triton.jit
def squared_relu(x, w, bias, residual, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    program = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tile_m = program % tiles_m
    tile_n = program // tiles_m
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        inside_x = (m < M)[:, None] & (k < K)[None, :]
        inside_w = (n < N)[:, None] & (k < K)[None, :]
        x_tile = tl.load(x + m[:, None] * K + k[None, :], mask=inside_x, other=0.0)
        w_tile = tl.load(w + n[:, None] * K + k[None, :], mask=inside_w, other=0.0)
        total += tl.dot(x_tile, tl.trans(w_tile))
    inside = (m < M)[:, None] & (n < N)[None, :]
    at = m[:, None] * N + n[None, :]
    total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    total = tl.maximum(total, 0.0)
    total = total * total + tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def normalized(x, gain, w, y, M, N, K, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    total = tl.zeros([BM, BN], dtype=tl.float32)
    squares = tl.zeros([BM], dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x_tile = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        g_tile = tl.load(gain + k, mask=k < K, other=0.0)
        x_wide = x_tile.to(tl.float32)
        squares += tl.sum(x_wide * x_wide, axis=1)
        w_tile = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        total += tl.dot((x_wide * g_tile[None, :]).to(tl.float16), w_tile.T)
    total = total * tl.rsqrt(squares / K + eps)[:, None]
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def constant_k(
    a, b, c, M, N, K: tl.constexpr, stride_am: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    m = (tile_m * BM + tl.arange(0, BM)) % M
    n = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    lefts = a + m[:, None] * stride_am + k[None, :]
    rights = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        left = tl.load(lefts)
        right = tl.load(rights)
        total = tl.dot(left, right, total)
        lefts += BK
        rights += BK * N
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def qkv(x, wq, wk, wv, query, key, value, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    of_q = tl.zeros((BM, BN), dtype=tl.float32)
    of_k = tl.zeros((BM, BN), dtype=tl.float32)
    of_v = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside_k = (first + k) < K
        x_tile = tl.load(
            x + m[:, None] * K + (first + k)[None, :], mask=(m < M)[:, None] & inside_k[None, :], other=0.0
        )
        weights = n[None, :] * K + (first + k)[:, None]
        inside_w = (n < N)[None, :] & inside_k[:, None]
        of_q += tl.dot(x_tile, tl.load(wq + weights, mask=inside_w, other=0.0))
        of_k += tl.dot(x_tile, tl.load(wk + weights, mask=inside_w, other=0.0))
        of_v += tl.dot(x_tile, tl.load(wv + weights, mask=inside_w, other=0.0))
    at = m[:, None] * N + n[None, :]
    inside = (m < M)[:, None] & (n < N)[None, :]
    tl.store(query + at, of_q.to(tl.float16), mask=inside)
    tl.store(key + at, of_k.to(tl.float16), mask=inside)
    tl.store(value + at, of_v.to(tl.float16), mask=inside)


@triton.jit
def gathered_rows(x, w, y, tokens, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    token = tl.load(tokens + m, mask=m < M, other=0)
    xs = x + token[:, None] * K + k[None, :]
    ws = w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        x_tile = tl.load(xs, mask=(m < M)[:, None] & (k[None, :] < K - step * BK), other=0.0)
        w_tile = tl.load(ws, mask=(n < N)[None, :] & (k[:, None] < K - step * BK), other=0.0)
        total = tl.dot(x_tile, w_tile, total)
        xs += BK
        ws += BK
    tl.store(y + m[:, None] * N + n[None, :], total.to(y.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def two_layers(
    x, w1, w2, y, TOKENS, INPUTS: tl.constexpr, HIDDEN: tl.constexpr, OUTPUTS: tl.constexpr, BT: tl.constexpr
):
    tokens = tl.program_id(0) * BT + tl.arange(0, BT)
    inputs, hidden_rows, outputs = tl.arange(0, INPUTS), tl.arange(0, HIDDEN), tl.arange(0, OUTPUTS)
    x_tile = tl.load(x + inputs[:, None] * TOKENS + tokens[None, :], mask=tokens[None, :] < TOKENS, other=0.0)
    first = tl.load(w1 + hidden_rows[:, None] * INPUTS + inputs[None, :])
    hidden = tl.maximum(tl.dot(first, x_tile), 0.0).to(tl.float16)
    second = tl.load(w2 + outputs[:, None] * HIDDEN + hidden_rows[None, :])
    result = tl.dot(second, hidden)
    tl.store(y + outputs[:, None] * TOKENS + tokens[None, :], result.to(tl.float16), mask=tokens[None, :] < TOKENS)
