"""Kernels of a server of language models: experts chosen for each token, batches of experts, scaled and repeatable products."""

from __future__ import annotations

from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes

EXPERTS = 8


@triton.jit
def fused_experts(
    x, w, y, x_scale, w_scale, bias, routing, sorted_tokens, expert_of, padded,
    N, K, room, slots, x_row, w_expert, w_row, y_row, xs_row, xs_k, ws_expert, ws_k, ws_n, bias_expert,
    TOP_K: tl.constexpr, WEIGHTED: tl.constexpr, HAS_BIAS: tl.constexpr, MODE: tl.constexpr,
    GROUP_N: tl.constexpr, GROUP_K: tl.constexpr, GROUP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [tokens · TOP_K, N] = rows of x [tokens, K] by w [experts, N, K], BM slots of one expert a tile.

    MODE: "plain", "tensor", "channel", "block" (scales of both operands), or "weights" (8-bit weights with a scale a row).
    """
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(room, BM), tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    first_m = program // in_group * GROUP
    group_m = min(tiles_m - first_m, GROUP)
    tile_m = first_m + program % in_group % group_m
    tile_n = program % in_group // group_m
    used = tl.load(padded)
    if tile_m * BM >= used:
        return
    slot = tile_m * BM + tl.arange(0, BM).to(tl.int64)
    token = tl.load(sorted_tokens + slot)
    real = token < slots
    expert = tl.load(expert_of + tile_m).to(tl.int64)
    n = (tile_n * BN + tl.arange(0, BN).to(tl.int64)) % N
    k = tl.arange(0, BK)
    x_at = x + (token[:, None] // TOP_K * x_row + k[None, :])
    w_at = w + expert * w_expert + (k[:, None] + n[None, :] * w_row)
    if MODE == "tensor":
        of_x = tl.load(x_scale)
        of_w = tl.load(w_scale + expert)
    elif MODE == "channel":
        of_x = tl.load(x_scale + token // TOP_K * xs_row, mask=real, other=0.0)[:, None]
        of_w = tl.load(w_scale + expert * ws_expert + n[None, :] * ws_n)
    elif MODE == "block":
        xs_at = x_scale + token // TOP_K * xs_row
        ws_at = w_scale + expert * ws_expert + n // GROUP_N * ws_n
    elif MODE == "weights":
        of_w = tl.load(w_scale + expert * ws_expert + n[None, :] * ws_n)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=real[:, None] & (k[None, :] < K - step * BK), other=0.0)
        two = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        if MODE == "weights":
            total = tl.dot(one, two.to(one.dtype), acc=total)
        elif MODE == "block":
            at = step * BK // GROUP_K
            by_x = tl.load(xs_at + at * xs_k, mask=real, other=0.0)
            by_w = tl.load(ws_at + at * ws_k)
            total += tl.dot(one, two) * by_x[:, None] * by_w[None, :]
        elif MODE == "tensor" or MODE == "channel":
            total = tl.dot(one, two, acc=total)
        else:
            total += tl.dot(one, two)
        x_at += BK
        w_at += BK
    if MODE == "weights":
        total = total * of_w
    elif MODE == "tensor" or MODE == "channel":
        total = total * of_x * of_w
    if HAS_BIAS:
        total += tl.load(bias + expert * bias_expert + n)[None, :].to(tl.float32)
    if WEIGHTED:
        total *= tl.load(routing + token, mask=real, other=0.0)[:, None]
    column = tile_n * BN + tl.arange(0, BN)
    at = y + token[:, None] * y_row + column[None, :]
    tl.store(at, total.to(y.dtype.element_ty), mask=real[:, None] & (column[None, :] < N))


def _routed(rng: np.random.Generator, tokens: int, top: int, block: int) -> tuple[Array, Array, Array, Array]:
    """The experts that a token goes to, one of them to none; and the slots sorted by expert, padded to whole blocks of one."""
    experts = np.array([e for e in range(EXPERTS) if e != 2])
    chosen = np.stack([rng.permutation(experts)[:top] for _ in range(tokens)]).astype(np.int32)
    slots, owners = [], []
    for expert in range(EXPERTS):
        mine = np.flatnonzero(chosen.ravel() == expert)
        blocks = -(-len(mine) // block)
        slots.append(np.concatenate([mine, np.full(blocks * block - len(mine), chosen.size)]))
        owners += [expert] * blocks
    used = sum(map(len, slots))
    # A server reserves for the worst case; blocks beyond those that are used return at once.
    spare = 2 * block
    found = np.concatenate([*slots, np.full(spare, chosen.size)]).astype(np.int32)
    return chosen, found, np.array([*owners, 0, 0], np.int32), np.array([used], np.int32)


def _experts(
    draw: Draw, s: Sizes, *, mode: str = "plain", top: int = 2, weighted: bool = False, biased: bool = False
) -> Call:
    tokens, groups, rng = s.m, (128, 128), draw.rng
    eight = {"plain": "f16", "weights": "f16"}.get(mode, "e4m3")
    x, w = (
        draw.dense(tokens, s.k, element=eight),
        draw.pruned(EXPERTS, s.n, s.k, element="s8" if mode == "weights" else eight),
    )
    chosen, slots, owners, used = _routed(rng, tokens, top, s.BM)
    kb, nb = -(-s.k // groups[1]), -(-s.n // groups[0])
    shape_x = {"tensor": (1, 1), "channel": (tokens, 1), "block": (tokens, kb)}.get(mode, (1, 1))
    shape_w = {"tensor": (1, 1), "block": (nb, kb)}.get(mode, (s.n, 1))
    x_scale = rng.uniform(0.5, 2, shape_x).astype(np.float32)
    w_scale = rng.uniform(0.5, 2, (EXPERTS, *shape_w)).astype(np.float32)
    bias, routing = draw.dense(EXPERTS, s.n), rng.uniform(0.1, 1, chosen.shape).astype(np.float32)

    def expected() -> dict[str, Array]:
        wide = w.astype(np.float64)
        if mode != "plain":
            of = w_scale.astype(np.float64)
            of = of if mode != "block" else of.repeat(groups[0], 1)[:, : s.n].repeat(groups[1], 2)[..., : s.k]
            wide = wide * of
        rows = x.astype(np.float64)
        if mode not in ("plain", "weights"):
            of = x_scale.astype(np.float64)
            rows = rows * (of if mode != "block" else of.repeat(groups[1], 1)[:, : s.k])
        out = np.zeros((tokens, top, s.n))
        for expert in range(EXPERTS):
            token, place = np.nonzero(chosen == expert)
            part = rows[token] @ wide[expert].T + (bias[expert].astype(np.float64) if biased else 0)
            out[token, place] = part * (routing[token, place][:, None] if weighted else 1)
        return {"y": out.reshape(tokens * top, s.n)}

    return Call(
        {
            "x": x, "w": w, "y": np.empty((tokens * top, s.n), np.float16), "x_scale": x_scale, "w_scale": w_scale,
            "bias": bias, "routing": routing, "sorted_tokens": slots, "expert_of": owners, "padded": used,
            "room": len(slots), "slots": tokens * top, "x_row": s.k, "w_expert": s.n * s.k, "w_row": s.k,
            "y_row": s.n, "xs_row": shape_x[1], "xs_k": 1, "ws_expert": w_scale[0].size, "ws_k": 1,
            "ws_n": shape_w[1], "bias_expert": s.n, "TOP_K": top, "WEIGHTED": weighted, "HAS_BIAS": biased,
            "MODE": mode, "GROUP_N": groups[0], "GROUP_K": groups[1], "GROUP": 4,
        },
        expected,
        grid=(len(owners) * s.grid[1],),
        operations=2.0 * tokens * top * s.n * s.k,
    )  # fmt: skip


@triton.jit
def batched_experts(
    y, x, w, counts, most, N, K, x_expert, x_row, w_expert, w_row, y_expert, y_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [experts, most, N] = x [experts, most, K] by w [experts, N, K]; `counts` says how many tokens each expert has."""
    expert = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    tile_m, tile_n = tl.program_id(1) // tiles_n, tl.program_id(1) % tiles_n
    tokens = tl.load(counts + expert)
    if tokens == 0:
        return
    if tile_m * BM >= tokens:
        return
    rows, columns = min(tokens - tile_m * BM, BM), min(N - tile_n * BN, BN)
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + expert.to(tl.int64) * x_expert + tile_m * BM * x_row + m[:, None] * x_row + k[None, :]
    w_at = w + expert.to(tl.int64) * w_expert + tile_n * BN * w_row + n[None, :] * w_row + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        one = tl.load(x_at, mask=(m < rows)[:, None] & (k[None, :] < left), other=0.0)
        two = tl.load(w_at, mask=(k[:, None] < left) & (n < columns)[None, :], other=0.0)
        total = tl.dot(one, two, total)
        x_at += BK
        w_at += BK
    y_at = y + expert.to(tl.int64) * y_expert + (tile_m * BM + m[:, None]) * y_row + tile_n * BN + n[None, :]
    tl.store(y_at, total.to(tl.float16), mask=(m < rows)[:, None] & (n < columns)[None, :])


def _batched(draw: Draw, s: Sizes) -> Call:
    counts = draw.rng.integers(1, s.m + 1, EXPERTS).astype(np.int32)
    counts[1], counts[3] = 0, s.m
    x, w = draw.dense(EXPERTS, s.m, s.k), draw.pruned(EXPERTS, s.n, s.k)

    def expected() -> dict[str, Array]:
        out = np.einsum("emk,enk->emn", x.astype(np.float64), w.astype(np.float64))
        return {"y": np.where(np.arange(s.m)[None, :, None] < counts[:, None, None], out, 0)}

    return Call(
        {
            "y": np.empty((EXPERTS, s.m, s.n), np.float16), "x": x, "w": w, "counts": counts, "most": s.m,
            "x_expert": s.m * s.k, "x_row": s.k, "w_expert": s.n * s.k, "w_row": s.k, "y_expert": s.m * s.n,
            "y_row": s.n,
        },
        expected,
        grid=(EXPERTS, s.flat),
        operations=2.0 * float(counts.sum()) * s.n * s.k,
        zeroed=True,
    )  # fmt: skip


@triton.jit
def _tile_of(tile, in_group, tiles_m, GROUP: tl.constexpr):
    first = tile // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    return first + tile % rows, tile % in_group // rows


@triton.jit
def repeatable_product(
    x, w, y, bias, M, N, K, x_row, w_row, y_row, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, WIDE_M: tl.constexpr, WIDE_N: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K], the same sums for every M: PROGRAMS programs share the tiles."""
    start = tl.program_id(0)
    tiles_m, tiles_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles = tiles_m * tiles_n
    behind = start - PROGRAMS
    k_of = tl.arange(0, BK)
    in_group = GROUP * tiles_n
    for tile in tl.range(start, tiles, PROGRAMS, flatten=True):
        tile_m, tile_n = _tile_of(tile, in_group, tiles_m, GROUP)
        m, n = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        if WIDE_M:
            m = m.to(tl.int64)
        if WIDE_N:
            n = n.to(tl.int64)
        m = tl.max_contiguous(tl.multiple_of(tl.where(m < M, m, 0), BM), BM)
        n = tl.max_contiguous(tl.multiple_of(tl.where(n < N, n, 0), BN), BN)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            k = step * BK + tl.arange(0, BK)
            one = tl.load(x + (m[:, None] * x_row + k[None, :]), mask=k_of[None, :] < K - step * BK, other=0.0)
            two = tl.load(w + (k[:, None] + n[None, :] * w_row), mask=k_of[:, None] < K - step * BK, other=0.0)
            total = tl.dot(one, two, total)
        behind += PROGRAMS
        tile_m, tile_n = _tile_of(behind, in_group, tiles_m, GROUP)
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        if HAS_BIAS:
            total += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)
        tl.store(y + y_row * rows[:, None] + columns[None, :], total.to(y.dtype.element_ty), mask=inside)


def _repeatable(draw: Draw, s: Sizes, *, biased: bool = False, wide: bool = False) -> Call:
    x, w, bias = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n)
    programs = min(132, s.flat - 1)

    def expected() -> dict[str, Array]:
        return {"y": x.astype(np.float64) @ w.astype(np.float64).T + (bias.astype(np.float64) if biased else 0)}

    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "bias": bias if biased else None, "x_row": s.k,
            "w_row": s.k, "y_row": s.n, "GROUP": 8, "PROGRAMS": programs, "HAS_BIAS": biased, "WIDE_M": wide,
            "WIDE_N": wide,
        },
        expected,
        grid=(programs,),
    )  # fmt: skip


@triton.jit
def scaled_product(
    x, w, x_scale, w_scale, y, bias, M, N, K, x_row, w_row, y_row,
    SUMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BXS: tl.constexpr, BWS: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K], times a scale a row, or one scale, of each; the bias may be missing."""
    program = tl.program_id(0)
    columns = tl.cdiv(N, BN)
    tile_m, tile_n = program // columns, program % columns
    total = tl.zeros((BM, BN), dtype=SUMS)
    m = tile_m * BM + tl.arange(0, BM).to(tl.int64)
    n = tile_n * BN + tl.arange(0, BN).to(tl.int64)
    k = tl.arange(0, BK).to(tl.int64)
    xs = tl.arange(0, BXS) + (BXS > 1) * tile_m * BM
    ws = tl.arange(0, BWS) + (BWS > 1) * tile_n * BN
    x_at = x + x_row * m[:, None] + k[None, :]
    w_at = w + k[:, None] + w_row * n[None, :]
    for _ in range(tl.cdiv(K, BK)):
        one = tl.load(x_at, mask=(m < M)[:, None] & (k < K)[None, :])
        two = tl.load(w_at, mask=(k < K)[:, None] & (n < N)[None, :])
        total = tl.dot(one, two, total, out_dtype=SUMS)
        k += BK
        x_at += BK
        w_at += BK
    of_x = tl.load(x_scale + xs[:, None], mask=(xs < M)[:, None])
    total = tl.broadcast_to(of_x, (BM, 1)) * total.to(tl.float32)
    of_w = tl.load(w_scale + ws[:, None], mask=(ws < N)[:, None])
    total = tl.broadcast_to(of_w, (BN, 1)).T * total.to(tl.float32)
    out = total.to(y.type.element_ty)
    if bias:
        out += tl.load(bias + n, mask=n < N)
    tl.store(y + y_row * m[:, None] + n[None, :], out, mask=(m < M)[:, None] & (n < N)[None, :])


def _scaled(draw: Draw, s: Sizes, *, element: str, biased: bool = False, rows: bool = True) -> Call:
    x, w, bias = draw.dense(s.m, s.k, element=element), draw.pruned(s.n, s.k, element=element), draw.dense(s.n)
    of_x = draw.rng.uniform(0.01, 0.1, (s.m if rows else 1, 1)).astype(np.float32)
    of_w = draw.rng.uniform(0.01, 0.1, (s.n if rows else 1, 1)).astype(np.float32)

    def expected() -> dict[str, Array]:
        out = (x.astype(np.float64) * of_x) @ (w.astype(np.float64) * of_w).T
        return {"y": out + (bias.astype(np.float64) if biased else 0)}

    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "x_scale": of_x, "w_scale": of_w,
            "bias": bias if biased else None, "x_row": s.k, "w_row": s.k, "y_row": s.n,
            "SUMS": tl.int32 if element == "s8" else tl.float32, "BXS": s.BM if rows else 1,
            "BWS": s.BN if rows else 1,
        },
        expected,
        grid=(s.flat,),
    )  # fmt: skip


@triton.jit
def gated_experts(
    y, x, w, sorted_tokens, expert_of, padded, slots, K, half, w_expert,
    TOP_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [slots, half] = silu(gate) · up, both by one weight [experts, 2 · half, K] that holds gate above up."""
    tile_m, tile_n = tl.program_id(0), tl.program_id(1)
    if tile_m * BM >= tl.load(padded):
        return
    token = tl.load(sorted_tokens + tile_m * BM + tl.arange(0, BM))
    real = token < slots
    expert = tl.load(expert_of + tile_m)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    rows = x + (token // TOP_K)[:, None] * K
    gate_rows = w + expert * w_expert + n[None, :] * K
    up_rows = gate_rows + half * K
    gate = tl.zeros((BM, BN), dtype=tl.float32)
    up = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        inside = first + k < K
        one = tl.load(rows + (first + k)[None, :], mask=real[:, None] & inside[None, :], other=0.0)
        of_gate = tl.load(gate_rows + (first + k)[:, None], mask=inside[:, None] & (n < half)[None, :], other=0.0)
        of_up = tl.load(up_rows + (first + k)[:, None], mask=inside[:, None] & (n < half)[None, :], other=0.0)
        gate = tl.dot(one, of_gate, gate)
        up = tl.dot(one, of_up, up)
    result = gate * tl.sigmoid(gate) * up
    tl.store(y + token[:, None] * half + n[None, :], result.to(tl.float16), mask=real[:, None] & (n < half)[None, :])


def _gated(draw: Draw, s: Sizes, *, top: int = 2) -> Call:
    x, w = draw.dense(s.m, s.k) / np.float16(4), draw.pruned(EXPERTS, 2 * s.n, s.k) / np.float16(4)
    chosen, slots, owners, used = _routed(draw.rng, s.m, top, s.BM)

    def expected() -> dict[str, Array]:
        both = np.einsum("mk,menk->men", x.astype(np.float64), w.astype(np.float64)[chosen], optimize=True)
        gate, up = both[..., : s.n], both[..., s.n :]
        return {"y": (gate / (1 + np.exp(-gate)) * up).reshape(s.m * top, s.n)}

    return Call(
        {
            "y": np.empty((s.m * top, s.n), np.float16), "x": x, "w": w, "sorted_tokens": slots, "expert_of": owners,
            "padded": used, "slots": s.m * top, "half": s.n, "w_expert": 2 * s.n * s.k, "TOP_K": top,
        },
        expected,
        grid=(len(owners), s.grid[1]),
        operations=4.0 * s.m * top * s.n * s.k,
    )  # fmt: skip


@triton.jit
def sorted_experts(
    y, x, w, order, owners, slots, N, K, HOW: tl.constexpr, WHOLE_K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [slots, N] = x [slots, K] by w [experts, N, K], rows gathered and scattered by `order`; blocks of owner -1 are zeros.

    HOW: the weight is "second" or "first" in the dot, or read through a "descriptor".
    """
    block, column = tl.program_id(1), tl.program_id(0) * BN
    expert = tl.load(owners + block)
    row = tl.load(order + block * BM + tl.arange(0, BM))
    inside = row < slots
    n, k = column + tl.arange(0, BN), tl.arange(0, BK)
    out = y + row.to(tl.int64)[:, None] * N + n[None, :]
    if expert == -1:
        tl.store(out, tl.zeros((BM, BN), dtype=tl.float16), mask=inside[:, None] & (n < N)[None, :])
        return
    total = tl.zeros((BM, BN), dtype=tl.float32)
    turned = tl.zeros((BN, BM), dtype=tl.float32)
    if HOW == "descriptor":
        tiles = tl.make_tensor_descriptor(w + expert.to(tl.int64) * N * K, [N, K], [K, 1], [BN, BK])
    for first in range(0, K, BK):
        if WHOLE_K:
            one = tl.load(x + row[:, None] * K + (first + k)[None, :], mask=inside[:, None], other=0.0)
        else:
            one = tl.load(
                x + row[:, None] * K + (first + k)[None, :], mask=inside[:, None] & (first + k < K)[None, :], other=0.0
            )
        if HOW == "descriptor":
            two = tiles.load([column, first])
        else:
            two = tl.load(
                w + expert * N * K + n[:, None] * K + (first + k)[None, :],
                mask=(n < N)[:, None] & (first + k < K)[None, :],
                other=0.0,
            )
        if HOW == "first":
            turned = tl.dot(two, one.T, turned)
        else:
            total = tl.dot(one, two.T, total)
    if HOW == "first":
        total = turned.T
    tl.store(out, total.to(tl.float16), mask=inside[:, None] & (n < N)[None, :])


def _sorted(draw: Draw, s: Sizes, *, how: str, whole: bool = False) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(EXPERTS, s.n, s.k)
    chosen, slots, owners, _ = _routed(draw.rng, s.m, 1, s.BM)
    owners[-2:] = -1

    def expected() -> dict[str, Array]:
        return {"y": np.einsum("mk,mnk->mn", x.astype(np.float64), w.astype(np.float64)[chosen[:, 0]], optimize=True)}

    return Call(
        {
            "y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "order": slots, "owners": owners, "slots": s.m,
            "HOW": how, "WHOLE_K": whole,
        },
        expected,
        grid=(s.grid[1], len(owners)),
    )  # fmt: skip


SMALL = Sizes(70, 200, 272, 64, 64, 64)
FEW = Sizes(9, 136, 272, 16, 128, 64)
LARGE = (
    Sizes(4096, 4096, 2048, 128, 128, 64),
    Sizes(4096, 4096, 2048, 64, 64, 64),
    Sizes(16, 4096, 2048, 16, 128, 64),
)
LARGE_8 = (
    Sizes(4096, 4096, 2048, 128, 128, 128),
    Sizes(4096, 4096, 2048, 64, 128, 128),
    Sizes(16, 4096, 2048, 16, 128, 128),
)
SMALL_8 = Sizes(70, 200, 272, 64, 64, 128)
SQUARE = (Sizes(4096, 4096, 4096, 128, 128, 64), Sizes(4096, 4096, 4096, 64, 64, 64))
SQUARE_8 = (Sizes(4096, 4096, 4096, 128, 128, 128), Sizes(4096, 4096, 4096, 64, 64, 128))

FORMS = (
    Form("fused experts", fused_experts, _experts, SMALL, LARGE, "experts"),
    Form("fused experts, few tokens", fused_experts, partial(_experts, top=3), FEW, LARGE[2:], "experts"),
    Form("fused experts, weighted", fused_experts, partial(_experts, top=1, weighted=True), SMALL, LARGE, "experts"),
    Form("fused experts, bias", fused_experts, partial(_experts, biased=True, weighted=True), SMALL, LARGE, "experts"),
    *(
        Form(f"fused experts, 8-bit, {mode} scales", fused_experts, partial(_experts, mode=mode), SMALL_8, LARGE_8, "experts")
        for mode in ("tensor", "channel", "block")
    ),
    Form("fused experts, 8-bit weights", fused_experts, partial(_experts, mode="weights"), SMALL, LARGE, "experts"),
    Form("batched experts", batched_experts, _batched, SMALL, (Sizes(1024, 4096, 2048, 128, 128, 64), *LARGE[2:]), "experts"),
    Form("gated experts", gated_experts, _gated, Sizes(70, 208, 272, 64, 64, 64), (Sizes(4096, 2048, 2048, 128, 64, 64), *LARGE[2:]), "experts"),
    *(
        Form(f"sorted experts, {how}", sorted_experts, partial(_sorted, how=how, whole=how == "first"),
        Sizes(70, 200, 320 if how == "first" else 272, 64, 64, 64), LARGE, "experts")
        for how in ("second", "first", "descriptor")
    ),
    Form("repeatable product", repeatable_product, _repeatable, Sizes(150, 200, 272, 64, 64, 64), SQUARE),
    Form(
        "repeatable product, bias", repeatable_product, partial(_repeatable, biased=True, wide=True),
        Sizes(150, 200, 272, 64, 64, 64), SQUARE,
    ),
    Form("scaled product, f16", scaled_product, partial(_scaled, element="f16"), Sizes(150, 104, 272, 128, 64, 64), SQUARE),
    Form(
        "scaled product, 8-bit integers", scaled_product, partial(_scaled, element="s8", biased=True),
        Sizes(150, 104, 272, 128, 64, 128), SQUARE_8,
    ),
    Form(
        "scaled product, 8-bit floats", scaled_product, partial(_scaled, element="e4m3", biased=True, rows=False),
        Sizes(150, 104, 272, 128, 64, 128), SQUARE_8, "8-bit floats",
    ),
)  # fmt: skip
