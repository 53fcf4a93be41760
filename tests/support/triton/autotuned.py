"""Products under `triton.autotune` and `triton.heuristics`, as Triton's users decorate them."""

from __future__ import annotations

import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 8, "BN": 16, "BK": 64}),
    triton.Config({"BM": 64, "BN": 32, "BK": 64}),
    triton.Config({"BM": 64, "BN": 32, "BK": 64}, num_warps=8, num_stages=4),
    triton.Config({"BM": 32, "BN": 16, "BK": 64}, num_warps=2),
]
"""Register tiles refuse the first for sparse arguments: metadata is for 16 rows. A product has tiles of its own."""


@triton.jit
def product(
    d, a, b, M, N, K, stride_d, stride_a, stride_b,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + m[:, None] * stride_a + k[None, :]
    right = b + k[:, None] * stride_b + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        rows, columns = m[:, None] < M, n[None, :] < N
        if EVEN_K:
            x = tl.load(left, mask=rows, other=0.0)
            y = tl.load(right, mask=columns, other=0.0)
        else:
            x = tl.load(left, mask=rows & (k[None, :] < K - step * BK), other=0.0)
            y = tl.load(right, mask=columns & (k[:, None] < K - step * BK), other=0.0)
        total = tl.dot(x, y, total)
        left += BK
        right += BK * stride_b
    tl.store(d + m[:, None] * stride_d + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def _even(args):
    return args["K"] % args["BK"] == 0


def with_configs(configs, **options):
    """The product under `triton.autotune` with these configs."""
    tuned = triton.autotune(configs=configs, key=["M", "N", "K"], **options)
    return tuned(triton.heuristics({"EVEN_K": _even})(product))


below = with_configs(CONFIGS)
alone = triton.heuristics({"BM": lambda args: 64, "BN": lambda args: 32, "BK": lambda args: 64, "EVEN_K": _even})(
    product
)
above = triton.heuristics({"EVEN_K": lambda args: args["K"] % 64 == 0})(
    triton.autotune(configs=CONFIGS[1:], key=["M", "N", "K"])(product)
)
pruned_early = with_configs(
    CONFIGS,
    prune_configs_by={
        "early_config_prune": lambda configs, args, **more: [
            config for config in configs if config.kwargs["BM"] <= (args | more)["M"] // 2
        ]
    },
)
modelled = with_configs(
    CONFIGS[1:],
    prune_configs_by={"perf_model": lambda M, BM, num_warps, **rest: M // BM + num_warps - 10 * (BM == 32), "top_k": 1},
)


@triton.autotune(configs=[triton.Config({"BM": 16, "BN": 16, "BK": 64}), CONFIGS[1]], key=["M", "N", "K"])
@triton.jit
def asserting(d, a, b, M, N, K, stride_d, stride_a, stride_b, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tl.static_assert(BM > 16)
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    left = tl.make_tensor_descriptor(a, [M, K], [stride_a, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [K, N], [stride_b, 1], [BK, BN])
    out = tl.make_tensor_descriptor(d, [M, N], [stride_d, 1], [BM, BN])
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(left.load([row, k]), right.load([k, column]), total)
    out.store([row, column], total.to(tl.float16))


def _set_blocks(args):
    for name, sizes in (("a_tiles", ("BM", "BK")), ("b_tiles", ("BK", "BN")), ("d_tiles", ("BM", "BN"))):
        args[name].block_shape = [args[size] for size in sizes]


@triton.autotune(
    configs=[
        triton.Config({"BM": 64, "BN": 32, "BK": 64}, pre_hook=_set_blocks),
        triton.Config({"BM": 128, "BN": 32, "BK": 64}, pre_hook=_set_blocks),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def hooked(d_tiles, a_tiles, b_tiles, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a_tiles.load([row, k]), b_tiles.load([k, column]), total)
    d_tiles.store([row, column], total.to(tl.float16))


SPLITS = [
    triton.Config({"BM": 64, "BN": 32, "BK": 64, "SPLITS": splits}, num_warps=warps)
    for splits, warps in ((2, 4), (3, 4), (2, 8))
]


@triton.autotune(configs=SPLITS, key=["M", "N", "K"], reset_to_zero=["d"])
@triton.jit
def split_k(d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    """d [M, N] += a · b in f32, each program a part of K."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(tl.program_id(2) * BK, K, BK * SPLITS):
        k = first + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    tl.atomic_add(d + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.autotune(
    configs=[triton.Config({"BM": 64, "BN": bn, "BK": 64}) for bn in (16, 32, 64)],
    key=["M", "N", "K"],
    restore_value=["d"],
)
@triton.jit
def added_to(d, a, b, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """d [M, N] = a · b + d in f32, in place."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    place, inside = d + m[:, None] * N + n[None, :], (m[:, None] < M) & (n[None, :] < N)
    tl.store(place, total + tl.load(place, mask=inside, other=0.0), mask=inside)
