"""Products as users write them in Triton. `python -m support.triton.keep` writes what Triton makes of each under tests/golden/ttir."""

import triton
import triton.language as tl


@triton.jit
def made_descriptors(
    d, a, b, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = a_tiles.load([row, step * BK])
        right = b_tiles.load([column, step * BK])
        total = tl.dot(left, right.T, total)
    d_tiles.store([row, column], total.to(tl.float16))


@triton.jit
def given_descriptors(d_tiles, a_tiles, b_tiles, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, k]), b_tiles.load([k, column]), total)
    d_tiles.store([row, column], total.to(tl.bfloat16))


@triton.jit
def block_pointers(
    d, a, b, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    left = tl.make_block_ptr(a, (M, K), (stride_a, 1), (row, 0), (BM, BK), (1, 0))
    right = tl.make_block_ptr(b, (K, N), (1, stride_b), (0, column), (BK, BN), (0, 1))
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(left, boundary_check=(0, 1), padding_option="zero")
        y = tl.load(right, boundary_check=(0, 1), padding_option="zero")
        total += tl.dot(x, y)
        left = tl.advance(left, (0, BK))
        right = tl.advance(right, (BK, 0))
    out = tl.make_block_ptr(d, (M, N), (stride_d, 1), (row, column), (BM, BN), (1, 0))
    tl.store(out, total.to(tl.float16), boundary_check=(0, 1))


@triton.jit
def leaky(x, slope: tl.constexpr):
    return tl.where(x >= 0, x, x * slope)


@triton.jit
def grouped_pointers(
    a, b, d, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_dm, stride_dn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    of_group = GROUP * tiles_n
    first_m = (program // of_group) * GROUP
    rows = min(tiles_m - first_m, GROUP)
    tile_m = first_m + ((program % of_group) % rows)
    tile_n = (program % of_group) // rows
    tl.assume(tile_m >= 0)
    tl.assume(stride_am > 0)

    m_read = (tile_m * BM + tl.arange(0, BM)) % M
    n_read = (tile_n * BN + tl.arange(0, BN)) % N
    k_read = tl.arange(0, BK)
    lefts = a + (m_read[:, None] * stride_am + k_read[None, :] * stride_ak)
    rights = b + (k_read[:, None] * stride_bk + n_read[None, :] * stride_bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(lefts, mask=k_read[None, :] < K - step * BK, other=0.0)
        right = tl.load(rights, mask=k_read[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        lefts += BK * stride_ak
        rights += BK * stride_bk
    if ACTIVATION == "leaky":
        total = leaky(total, 0.01)
    result = total.to(tl.float16)

    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    outs = d + stride_dm * m[:, None] + stride_dn * n[None, :]
    tl.store(outs, result, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def indexed_pointers(
    a, b, d, bias, scale, M, N, K, stride_a, stride_b, stride_d,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.int32)
    for first in tl.range(0, K, BK, num_stages=3):
        k = first + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * stride_a + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0)
        right = tl.load(b + n[None, :] * stride_b + k[:, None], mask=(k[:, None] < K) & (n[None, :] < N), other=0)
        total += tl.dot(left, right)
    wide = total.to(tl.float32) * tl.load(scale + m, mask=m < M, other=0.0)[:, None]
    wide = tl.clamp(wide + tl.load(bias + n, mask=n < N)[None, :], -100.0, 100.0)
    tl.store(d + m[None, :] + n[:, None] * stride_d, wide.T.to(tl.float16), mask=(n[:, None] < N) & (m[None, :] < M))


@triton.jit
def eight_bit_blocks(
    d, a, b, M, N, K, stride_a, stride_b, stride_d, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    tiles_n = tl.cdiv(N, BN)
    row = (tl.program_id(0) // tiles_n) * BM
    column = (tl.program_id(0) % tiles_n) * BN
    a_tiles = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    b_tiles = tl.make_tensor_descriptor(b, [N, K], [stride_b, 1], [BN, BK])
    d_tiles = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, k]), b_tiles.load([column, k]).T, total)
    total = total * tl.sigmoid(total)
    d_tiles.store([row, column], total.to(tl.float8e4nv))
