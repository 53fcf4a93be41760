"""Experts and groups: of vLLM, FBGEMM, Unsloth, LightLLM, and of a descriptor for each expert."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide
from support.triton.public.common import SMALL, place_in_group, programs

EXPERTS = 4
TOP = 2


@triton.jit
def write_zeros(y, stride_ym, tile_n, N, slot, real, BM: tl.constexpr, BN: tl.constexpr):
    column = tile_n * BN + tl.arange(0, BN)
    y_at = y + stride_ym * slot[:, None] + column[None, :]
    tl.store(y_at, tl.zeros((BM, BN), dtype=tl.float16), mask=real[:, None] & (column[None, :] < N))


@triton.jit
def fused_experts(
    x, w, y, x_scale, w_scale, weight_of, sorted_slots, expert_of, padded, N, K, room, slots,
    stride_xm, stride_we, stride_wn, stride_ym, xs_row, ws_expert, ws_row,
    GROUP_N: tl.constexpr, GROUP_K: tl.constexpr, TOP_K: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """vLLM's experts: BM sorted slots of one expert a tile, zeros for an expert -1, slots weighted.

    GROUP_N and GROUP_K: sizes of blocks with a scale each, or 0 for operands without scales.
    """
    tile_m, tile_n = place_in_group(tl.program_id(axis=0), tl.cdiv(room, BM), tl.cdiv(N, BN), GROUP)
    if tile_m * BM >= tl.load(padded):
        return
    slot = tl.load(sorted_slots + tile_m * BM + tl.arange(0, BM).to(tl.int64))
    real = slot < slots
    expert = tl.load(expert_of + tile_m).to(tl.int64)
    if expert == -1:
        write_zeros(y, stride_ym, tile_n, N, slot, real, BM, BN)
        return
    n = (tile_n * BN + tl.arange(0, BN).to(tl.int64)) % N
    k = tl.arange(0, BK)
    x_at = x + (slot[:, None] // TOP_K * stride_xm + k[None, :])
    w_at = w + expert * stride_we + (k[:, None] + n[None, :] * stride_wn)
    if GROUP_K > 0:
        xs_at = x_scale + (slot // TOP_K) * xs_row
        ws_at = w_scale + expert * ws_expert + (n // GROUP_N) * ws_row
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=real[:, None] & (k[None, :] < K - step * BK), other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        if GROUP_K > 0:
            block = step * BK // GROUP_K
            of_x = tl.load(xs_at + block, mask=real, other=0.0)
            of_w = tl.load(ws_at + block)
            total += tl.dot(one, two) * of_x[:, None] * of_w[None, :]
        else:
            total += tl.dot(one, two)
        x_at += BK
        w_at += BK
    total = total * tl.load(weight_of + slot, mask=real, other=0)[:, None]
    column = tile_n * BN + tl.arange(0, BN)
    y_at = y + stride_ym * slot[:, None] + column[None, :]
    tl.store(y_at, total.to(tl.float16), mask=real[:, None] & (column[None, :] < N))


def _chosen(draw: Draw, tokens: int) -> Array:
    """TOP different experts for each token [tokens, TOP]."""
    return np.stack([draw.rng.permutation(EXPERTS)[:TOP] for _ in range(tokens)]).astype(np.int32)


def _by_expert(rows: Array, w: Array, expert_of: Array) -> Array:
    """Each row [rows, K] times the matrix of its expert [experts, N, K], in float64."""
    made = np.empty((len(rows), w.shape[1]))
    for expert, matrix in enumerate(w):
        made[expert_of == expert] = rows[expert_of == expert] @ wide(matrix).T
    return made


def _sorted_slots(expert_of: Array, block: int) -> tuple[Array, Array, int]:
    """Slots by expert, each expert's padded to whole blocks, and the expert of each block; a block more than is used."""
    slots: list[int] = []
    owners: list[int] = []
    for expert in range(EXPERTS):
        mine = np.flatnonzero(expert_of == expert).tolist()
        mine += [len(expert_of)] * (-len(mine) % block)
        slots += mine
        owners += [expert] * (len(mine) // block)
    used = len(slots)
    slots += [len(expert_of)] * block
    return np.array(slots, np.int32), np.array([*owners, 0], np.int32), used


def _fused(draw: Draw, s: Sizes, *, blocks: bool = False) -> Call:
    """blocks: 8-bit floats with a scale for each BK×BK block of the weight and each BK elements of a row."""
    element = "e4m3" if blocks else "f16"
    expert_of = _chosen(draw, s.m).ravel()
    slots, owners, used = _sorted_slots(expert_of, s.BM)
    x, w = draw.dense(s.m, s.k, element=element), draw.pruned(EXPERTS, s.n, s.k, element=element)
    weight_of = draw.rng.uniform(0.2, 1, s.m * TOP).astype(np.float32)
    along_k, along_n = -(-s.k // s.BK), -(-s.n // s.BK)
    x_scale = draw.rng.uniform(0.01, 0.1, (s.m, along_k)).astype(np.float32)
    w_scale = draw.rng.uniform(0.1, 1, (EXPERTS, along_n, along_k)).astype(np.float32)

    def expected() -> dict[str, Array]:
        rows, matrices = wide(x), w
        if blocks:
            rows = rows * x_scale.repeat(s.BK, 1)[:, : s.k]
            matrices = wide(w) * w_scale.repeat(s.BK, 1).repeat(s.BK, 2)[:, : s.n, : s.k]
        return {"y": _by_expert(rows.repeat(TOP, 0), matrices, expert_of) * weight_of[:, None]}

    return Call(
        {
            "x": x, "w": w, "y": np.empty((s.m * TOP, s.n), np.float16), "x_scale": x_scale, "w_scale": w_scale,
            "weight_of": weight_of, "sorted_slots": slots, "expert_of": owners, "padded": np.array([used], np.int32),
            "room": len(slots), "slots": s.m * TOP, "stride_xm": s.k, "stride_we": s.n * s.k, "stride_wn": s.k,
            "stride_ym": s.n, "xs_row": along_k, "ws_expert": along_n * along_k, "ws_row": along_k,
            "GROUP_N": s.BK if blocks else 0, "GROUP_K": s.BK if blocks else 0, "TOP_K": TOP, "GROUP": 2,
        },
        expected,
        grid=(len(owners) * s.grid[1],),
        operations=2.0 * TOP * s.m * s.n * s.k,
    )  # fmt: skip


@triton.jit
def product_of_block(x_at, w_at, K, rows, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=rows[:, None] & (k[None, :] < K - step * BK), other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total += tl.dot(one, two)
        x_at += BK
        w_at += BK
    return total


@triton.jit
def store_block(x, w, y, K, tokens, width, stride_ym, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    k = tl.arange(0, BK)
    m = tl.arange(0, BM)
    n = tl.arange(0, BN) % width
    rows = m < tokens
    total = product_of_block(x + m[:, None] * K + k[None, :], w + k[:, None] + n[None, :] * K, K, rows, BM, BN, BK)
    column = tl.arange(0, BN)
    y_at = y + m[:, None] * stride_ym + column[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=rows[:, None] & (column[None, :] < width))


@triton.jit
def batched_experts(
    x, w, y, counts, N, K, stride_xe, stride_we, stride_ye, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """vLLM's batched experts: each has rows of its own; pointers move to the block, which functions of functions multiply."""
    expert = tl.program_id(0)
    tokens = tl.load(counts + expert)
    if tokens == 0:
        return
    tiles_n = tl.cdiv(N, BN)
    first_m = tl.program_id(1) // tiles_n * BM
    first_n = tl.program_id(1) % tiles_n * BN
    if first_m >= tokens:
        return
    x += expert * stride_xe + first_m * K
    w += expert * stride_we + first_n * K
    y += expert * stride_ye + first_m * N + first_n
    store_block(x, w, y, K, min(BM, tokens - first_m), min(BN, N - first_n), N, BM, BN, BK)


def _batched(draw: Draw, s: Sizes) -> Call:
    counts = np.array([s.m, 0, s.m - 7], np.int32)
    x, w = draw.dense(3, s.m, s.k), draw.pruned(3, s.n, s.k)

    def expected() -> dict[str, Array]:
        real = np.arange(s.m)[:, None] < counts[:, None, None]
        return {"y": np.where(real, wide(x) @ wide(w).transpose(0, 2, 1), 0)}

    return Call(
        {
            "x": x, "w": w, "y": np.empty((3, s.m, s.n), np.float16), "counts": counts,
            "stride_xe": s.m * s.k, "stride_we": s.n * s.k, "stride_ye": s.m * s.n,
        },
        expected,
        grid=(3, s.flat),
        zeroed=True,
        operations=2.0 * float(counts.sum()) * s.n * s.k,
    )  # fmt: skip


@triton.jit
def described_groups(
    x, w, y, sizes, M, N, K, GROUPS: tl.constexpr, NUM_SMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """FBGEMM's groups: persistent programs take the tiles of all groups in turn, by one descriptor of all weights."""
    turn = tl.program_id(0)
    of_w = tl.make_tensor_descriptor(w, [GROUPS * N, K], [K, 1], [BN, BK])
    of_x = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    end = 0
    done = 0
    for group in tl.range(GROUPS):
        size = tl.load(sizes + group)
        if size > 0:
            start = end
            end = start + size
            tiles_m = tl.cdiv(size, BM)
            tiles = tiles_m * tl.cdiv(N, BN)
            while turn >= done and turn < done + tiles:
                tile_m = (turn - done) % tiles_m
                tile_n = (turn - done) // tiles_m
                total = tl.zeros((BM, BN), dtype=tl.float32)
                row = (start + tile_m * BM).to(tl.int32)
                column = (group * N + tile_n * BN).to(tl.int32)
                for first in range(0, K, BK):
                    one = of_x.load([row, first])
                    two = of_w.load([column, first])
                    total = tl.dot(one, two.T, total)
                m = tile_m * BM + tl.arange(0, BM)
                n = tile_n * BN + tl.arange(0, BN)
                y_at = y + (start + m[:, None]) * N + n[None, :]
                tl.store(y_at, total.to(y.dtype.element_ty), mask=(m[:, None] < size) & (n[None, :] < N))
                turn += NUM_SMS
            done += tiles


def _groups(draw: Draw, s: Sizes) -> Call:
    sizes = np.array([s.m - 15, 0, 15], np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(len(sizes) * s.n, s.k)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    y = np.empty((s.m, s.n), np.float16)
    return Call(
        {"x": x, "w": w, "y": y, "sizes": sizes, "GROUPS": len(sizes), "NUM_SMS": programs(s)},
        lambda: {"y": _by_expert(wide(x), w.reshape(-1, s.n, s.k), owner)},
        grid=(programs(s),),
    )


@triton.jit
def gathered_groups(
    x, w, y, sizes, gathered, NUM_SMS, EXPERTS: tl.constexpr, TOP_K: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Unsloth's groups: a flattened loop over experts around a loop over tiles; tokens are gathered, results are sorted."""
    turn = tl.program_id(0)
    end = 0
    done = 0
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    for expert in tl.range(EXPERTS, flatten=True):
        start = end
        size = tl.load(sizes + expert).to(tl.int32)
        end = start + size
        if size > 0:
            tiles_m = tl.cdiv(size, BM)
            tiles_n: tl.constexpr = (N + BN - 1) // BN
            tiles = tiles_m * tiles_n
            while turn >= done and turn < done + tiles:
                tile_m = (turn - done) % tiles_m
                tile_n = (turn - done) // tiles_m
                place = tile_m * BM + m
                inside = place < size
                row = start + tl.max_contiguous(tl.multiple_of(place % size, BM), BM)
                slot = tl.load(gathered + row)
                column = tile_n * BN + tl.arange(0, BN)
                n = tl.max_contiguous(tl.multiple_of(column % N, BN), BN)
                x_at = x + (slot // TOP_K)[:, None] * K + k[None, :]
                w_at = w + expert * N * K + n[:, None] * K + k[None, :]
                total = tl.zeros((BM, BN), dtype=tl.float32)
                for first in range(0, K, BK):
                    left = first + k < K
                    one = tl.load(x_at, mask=inside[:, None] & left[None, :])
                    two = tl.load(w_at, mask=left[None, :])
                    total += tl.dot(one, two.T)
                    x_at += BK
                    w_at += BK
                y_at = y + row[:, None] * N + column[None, :]
                tl.store(y_at, total.to(y.dtype.element_ty), mask=inside[:, None] & (column[None, :] < N))
                turn += NUM_SMS
            done += tiles


def _gathered(draw: Draw, s: Sizes) -> Call:
    expert_of = _chosen(draw, s.m).ravel()
    order = np.argsort(expert_of, kind="stable").astype(np.int32)
    sizes = np.bincount(expert_of, minlength=EXPERTS).astype(np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(EXPERTS, s.n, s.k)
    return Call(
        {
            "x": x, "w": w, "y": np.empty((s.m * TOP, s.n), np.float16), "sizes": sizes, "gathered": order,
            "NUM_SMS": programs(s), "EXPERTS": EXPERTS, "TOP_K": TOP, "N": s.n, "K": s.k,
        },
        lambda: {"y": _by_expert(wide(x)[order // TOP], w, expert_of[order])},
        grid=(programs(s),),
        operations=2.0 * TOP * s.m * s.n * s.k,
    )  # fmt: skip


@triton.jit
def listed_experts(
    x, w, y, slots_by_expert, counts, starts, expert_of, block_of, weight_of, stride_we, N, K,
    TOP_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """LightLLM's experts: lists say the expert of a block, -1 for none, and the block's number among the expert's."""
    tiles_n = tl.cdiv(N, BN)
    block = tl.program_id(0) // tiles_n
    tile_n = tl.program_id(0) % tiles_n
    expert = tl.load(expert_of + block)
    if expert == -1:
        return
    m = tl.load(block_of + block) * BM + tl.arange(0, BM)
    real = m < tl.load(counts + expert)
    slot = tl.load(slots_by_expert + tl.load(starts + expert) + m, mask=real, other=0)
    n = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    x_at = x + (slot // TOP_K)[:, None] * K + k[None, :]
    w_at = w + stride_we * expert + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=real[:, None] & (k[None, :] < K), other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K, other=0.0)
        total += tl.dot(one, two)
        w_at += BK
        x_at += BK
        k += BK
    total *= tl.load(weight_of + slot, mask=real, other=0.0)[:, None]
    column = tile_n * BN + tl.arange(0, BN)
    y_at = y + slot[:, None] * N + column[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=real[:, None] & (column[None, :] < N))


def _listed(draw: Draw, s: Sizes) -> Call:
    slot_expert = _chosen(draw, s.m).ravel()
    order = np.argsort(slot_expert, kind="stable").astype(np.int32)
    counts = np.bincount(slot_expert, minlength=EXPERTS).astype(np.int32)
    blocks = [(expert, block) for expert in range(EXPERTS) for block in range(-(-int(counts[expert]) // s.BM))]
    lists: Any = np.array([*blocks, (-1, 0)], np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(EXPERTS, s.n, s.k)
    weight_of = draw.rng.uniform(0.2, 1, s.m * TOP).astype(np.float32)
    return Call(
        {
            "x": x, "w": w, "y": np.empty((s.m * TOP, s.n), np.float16), "slots_by_expert": order, "counts": counts,
            "starts": (np.cumsum(counts) - counts).astype(np.int32), "expert_of": lists[:, 0].copy(),
            "block_of": lists[:, 1].copy(), "weight_of": weight_of, "stride_we": s.n * s.k, "TOP_K": TOP,
        },
        lambda: {"y": _by_expert(wide(x).repeat(TOP, 0), w, slot_expert) * weight_of[:, None]},
        grid=(len(lists) * s.grid[1],),
        operations=2.0 * TOP * s.m * s.n * s.k,
    )  # fmt: skip


@triton.jit
def expert_descriptors(
    x, w, y, offsets, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """A descriptor that begins at the expert's matrix, made of a moved pointer; rows of x between offsets."""
    expert = tl.program_id(2)
    start = tl.load(offsets + expert)
    end = tl.load(offsets + expert + 1)
    if tl.program_id(0) * BM >= end - start:
        return
    m = start + tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN
    n = column + tl.arange(0, BN)
    of_w = tl.make_tensor_descriptor(
        w + expert.to(tl.int64) * N * K, shape=[N, K], strides=[K, 1], block_shape=[BN, BK]
    )
    total = tl.zeros((BM, BN), tl.float32)
    for first in tl.range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < end) & (k[None, :] < K), other=0.0)
        two = of_w.load([column, first])
        total = tl.dot(one, two.T, total)
    y_at = y + m[:, None] * N + n[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=(m[:, None] < end) & (n[None, :] < N))


def _described(draw: Draw, s: Sizes) -> Call:
    offsets = np.array([0, 13, 13, s.m], np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(3, s.n, s.k)
    owner = np.repeat(np.arange(3), np.diff(offsets))
    return Call(
        {"x": x, "w": w, "y": np.empty((s.m, s.n), np.float16), "offsets": offsets},
        lambda: {"y": _by_expert(wide(x), w, owner)},
        grid=(*s.grid, 3),
    )


@triton.jit
def packed_experts(
    x, w, bias, y, blocks, counts, starts, tokens, tiles_n, N, K, stride_we, stride_wn, stride_wk, stride_be, LIMIT,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Experts of triton_kernels: a word says the expert and the block, tokens are gathered, columns alternate gate and up."""
    word = tl.load(blocks + tl.program_id(0) // tiles_n)
    if word < 0:
        return
    expert = (word & 0xFFFF).to(tl.int64)
    m = (word >> 16) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % tiles_n).to(tl.int64) * BN + tl.arange(0, BN)
    count = tl.load(counts + expert)
    start = tl.load(starts + expert).to(tl.int64)
    token = tl.load(tokens + start + m % count).to(tl.int64)
    column = tl.max_contiguous(tl.multiple_of(n % N, BN), BN)
    k = tl.arange(0, BK)
    x_at = x + token[:, None] * K + k[None, :]
    w_at = w + expert * stride_we + k[:, None] * stride_wk + column[None, :] * stride_wn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for left in range(K, 0, -BK):
        one = tl.load(x_at, mask=k[None, :] < left, other=0.0)
        two = tl.load(w_at, mask=k[:, None] < left, other=0.0)
        total = tl.dot(one, two, total)
        x_at += BK
        w_at += BK * stride_wk
    total += tl.load(bias + expert * stride_be + n, mask=n < N, other=0.0)[None, :]
    gate, up = tl.split(total.reshape(BM, BN // 2, 2))
    gate = tl.minimum(gate, LIMIT)
    up = tl.clamp(up, -LIMIT, LIMIT)
    out = gate * tl.sigmoid(gate) * (up + 1.0)
    half = tl.program_id(0) % tiles_n * (BN // 2) + tl.arange(0, BN // 2)
    y_at = y + (start + m)[:, None] * (N // 2) + half[None, :]
    tl.store(y_at, out.to(y.dtype.element_ty), mask=(m < count)[:, None] & (half < N // 2)[None, :])


def _packed(draw: Draw, s: Sizes, *, transposed: bool = False) -> Call:
    """transposed: w [experts, K, N], sparse along K."""
    expert_of = np.sort(_chosen(draw, s.m).ravel())
    counts = np.bincount(expert_of, minlength=EXPERTS).astype(np.int32)
    words = [expert | block << 16 for expert in range(EXPERTS) for block in range(-(-int(counts[expert]) // s.BM))]
    tokens = draw.rng.integers(0, s.m, len(expert_of)).astype(np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(EXPERTS, s.n, s.k)
    w = (w * 0.2).astype(w.dtype)
    bias, limit = draw.rng.standard_normal((EXPERTS, s.n)).astype(np.float32), 7.0

    def expected() -> dict[str, Array]:
        total = _by_expert(wide(x)[tokens], w, expert_of) + bias[expert_of]
        gate, up = np.minimum(total[:, ::2], limit), np.clip(total[:, 1::2], -limit, limit)
        return {"y": gate / (1 + np.exp(-gate)) * (up + 1)}

    strides = {"stride_wn": 1, "stride_wk": s.n} if transposed else {"stride_wn": s.k, "stride_wk": 1}
    return Call(
        {
            "x": x, "w": np.ascontiguousarray(w.swapaxes(1, 2)) if transposed else w, "bias": bias,
            "y": np.empty((len(tokens), s.n // 2), np.float16), "blocks": np.array([*words, -1], np.int32),
            "counts": counts, "starts": (np.cumsum(counts) - counts).astype(np.int32), "tokens": tokens,
            "tiles_n": s.grid[1], "stride_we": s.n * s.k, "stride_be": s.n, "LIMIT": limit, **strides,
        },
        expected,
        axes={"w": -2} if transposed else {},
        grid=((len(words) + 1) * s.grid[1],),
        operations=2.0 * TOP * s.m * s.n * s.k,
    )  # fmt: skip


FEW = Sizes(24, 56, 144, 16, 32, 64)
WHOLE = Sizes(40, 64, 192, 32, 32, 64)
LARGE = (Sizes(1024, 4096, 4096, 64, 128, 64),)
HALF = (Sizes(512, 4096, 4096, 64, 128, 64),)

FORMS = (
    Form("experts of sorted slots", fused_experts, _fused, FEW, LARGE, "experts"),
    Form(
        "experts of sorted slots, block scales",
        fused_experts,
        partial(_fused, blocks=True),
        Sizes(24, 64, 384, 16, 64, 128),
        (Sizes(1024, 4096, 4096, 64, 128, 128),),
        "experts",
        tolerance=2.0**-5,
    ),
    Form("experts with rows of their own", batched_experts, _batched, SMALL, HALF, "experts"),
    Form(
        "groups by one descriptor",
        described_groups,
        _groups,
        WHOLE,
        (Sizes(1024, 4096, 4096, 128, 128, 64),),
        "experts",
    ),
    Form("groups of gathered tokens", gathered_groups, _gathered, SMALL, HALF, "experts"),
    Form("experts by lists of blocks", listed_experts, _listed, FEW, HALF, "experts"),
    Form("descriptors of experts", expert_descriptors, _described, WHOLE, LARGE, "experts"),
    Form("experts by packed blocks", packed_experts, _packed, WHOLE, HALF, "experts"),
    Form(
        "experts [K, N] by packed blocks",
        packed_experts,
        partial(_packed, transposed=True),
        SMALL,
        HALF,
        "experts",
    ),
)
