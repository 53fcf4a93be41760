"""Batches of Inductor and FlagGems, adapters, one token, a state-space scan, a gradient, rows that become integers."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, wide
from support.triton.public.common import SMALL, sigmoid, swapped


@triton.jit
def batch_template(
    x, w, y, bias, M, N, K, stride_xb, stride_xm, stride_wb, stride_wk, stride_wn, EVEN_K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Inductor's template of a batch: K counts down, a bias and relu written as its epilogues are."""
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    m = tl.max_contiguous(tl.multiple_of(row % M, BM), BM)
    n = tl.max_contiguous(tl.multiple_of(column % N, BN), BN)
    k = tl.arange(0, BK)
    sample = tl.program_id(2)
    x_at = x + (m[:, None] * stride_xm + k[None, :] + sample * stride_xb)
    w_at = w + (k[:, None] * stride_wk + n[None, :] * stride_wn + sample * stride_wb)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for left in range(K, 0, -BK):
        if EVEN_K:
            one = tl.load(x_at)
            two = tl.load(w_at)
        else:
            one = tl.load(x_at, mask=k[None, :] < left, other=0.0)
            two = tl.load(w_at, mask=k[:, None] < left, other=0.0)
        total += tl.dot(one, two, allow_tf32=True)
        x_at += BK
        w_at += BK * stride_wk
    index_m = row[:, None]
    index_n = column[None, :]
    inside = (index_m < M) & (index_n < N)
    place = index_n + N * index_m + M * N * sample
    added = tl.load(bias + tl.broadcast_to(index_n, total.shape), inside, eviction_policy="evict_last").to(tl.float32)
    zero = tl.full([1, 1], 0, tl.int32)
    result = tl.maximum(zero.to(tl.float32), total + added)
    tl.store(y + tl.broadcast_to(place, total.shape), result, inside)


def _template(draw: Draw, s: Sizes, batch: int = 2) -> Call:
    x, w, bias = draw.dense(batch, s.m, s.k), draw.pruned(batch, s.n, s.k), draw.dense(s.n)
    return Call(
        {
            "x": x, "w": w, "y": np.empty((batch, s.m, s.n), np.float16), "bias": bias, "EVEN_K": s.k % s.BK == 0,
            "stride_xb": s.m * s.k, "stride_xm": s.k, "stride_wb": s.n * s.k, "stride_wk": 1, "stride_wn": s.k,
        },
        lambda: {"y": np.maximum(wide(x) @ wide(w).transpose(0, 2, 1) + wide(bias), 0)},
        grid=(*s.grid, batch),
        operations=2.0 * batch * s.m * s.n * s.k,
    )  # fmt: skip


@triton.jit
def batch_of_tiles(
    x, w, y, M, N, K, EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """FlagGems' batch, w [batch, K, N]: no mask along an axis of whole tiles, None where no axis needs one."""
    sample = tl.program_id(2)
    x += sample * M * K
    w += sample * K * N
    y += sample * M * N
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    if not EVEN_M:
        in_m = m < M
    if not EVEN_N:
        in_n = n < N
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK)):
        if EVEN_K:
            mask_x = None if EVEN_M else in_m[:, None]
            mask_w = None if EVEN_N else in_n[None, :]
        else:
            in_k = k < K
            mask_x = in_k[None, :] if EVEN_M else in_m[:, None] & in_k[None, :]
            mask_w = in_k[:, None] if EVEN_N else in_k[:, None] & in_n[None, :]
        one = tl.load(x_at, mask_x)
        two = tl.load(w_at, mask_w)
        k += BK
        x_at += BK
        w_at += BK * N
        total += tl.dot(one, two, allow_tf32=False)
    if EVEN_M and EVEN_N:
        mask_y = None
    elif EVEN_M:
        mask_y = in_n[None, :]
    elif EVEN_N:
        mask_y = in_m[:, None]
    else:
        mask_y = in_m[:, None] & in_n[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total, mask_y)


def _tiles(draw: Draw, s: Sizes, batch: int = 3) -> Call:
    x, w = draw.dense(batch, s.m, s.k), swapped(draw.pruned(batch, s.n, s.k))
    even = {"EVEN_M": s.m % s.BM == 0, "EVEN_N": s.n % s.BN == 0, "EVEN_K": s.k % s.BK == 0}
    return Call(
        {"x": x, "w": w, "y": np.empty((batch, s.m, s.n), np.float16), **even},
        lambda: {"y": wide(x) @ wide(w)},
        axes={"w": -2},
        grid=(*s.grid, batch),
        operations=2.0 * batch * s.m * s.n * s.k,
        library=lambda given: given["x"] @ given["w"],
    )


@triton.jit
def shrink_rows(
    x, w, y, N, K, adapter, row, real, tile_n, part, scaling, stride_wa,
    EVEN_K: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BN) + tile_n * BN
    n = tl.max_contiguous(tl.multiple_of(column % N, BN), BN)
    k = part * BK + tl.arange(0, BK)
    x_at = x + row[:, None] * K + k[None, :]
    w_at = w + stride_wa * adapter + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * PARTS)):
        if EVEN_K:
            one = tl.load(x_at)
            two = tl.load(w_at)
        else:
            left = K - step * (BK * PARTS)
            one = tl.load(x_at, mask=k[None, :] < left, other=0.0)
            two = tl.load(w_at, mask=k[:, None] < left, other=0.0)
        total += tl.dot(one, two)
        x_at += BK * PARTS
        w_at += BK * PARTS
    total *= scaling
    y_at = y + row[:, None] * N + column[None, :]
    tl.atomic_add(y_at, total, mask=real[:, None] & (column[None, :] < N), sem="relaxed")


@triton.jit
def adapters_shrink(
    x, w, y, M, N, K, tokens, counts, starts, adapters, scaling, stride_wa,
    EVEN_K: tl.constexpr, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """vLLM's first product of LoRA: tokens sorted by adapter, -1 for none; parts of K are added by atomics."""
    tiles_m = tl.cdiv(M, BM)
    part = tl.program_id(0) % PARTS
    tile = tl.program_id(0) // PARTS
    tile_m = tile % tiles_m
    tile_n = tile // tiles_m % tl.cdiv(N, BN)
    which = tl.program_id(1)
    adapter = tl.load(adapters + which)
    if adapter == -1:
        return
    count = tl.load(counts + which)
    first = tile_m * BM
    if first >= count:
        return
    here = min(BM, count - first)
    row = tl.load(tokens + tl.load(starts + which) + first + tl.arange(0, BM) % here)
    real = tl.arange(0, BM) < here
    shrink_rows(x, w, y, N, K, adapter, row, real, tile_n, part, scaling, stride_wa, EVEN_K, PARTS, BM, BN, BK)


def _shrink(draw: Draw, s: Sizes, parts: int = 2, adapters: int = 3) -> Call:
    owner = draw.rng.integers(-1, adapters, s.m)
    names = np.arange(-1, adapters, dtype=np.int32)
    counts = np.array([(owner == name).sum() for name in names], np.int32)
    x, w = draw.dense(s.m, s.k), draw.pruned(adapters, s.n, s.k)

    def expected() -> dict[str, Array]:
        made = np.zeros((s.m, s.n))
        for adapter in range(adapters):
            made[owner == adapter] = wide(x[owner == adapter]) @ wide(w[adapter]).T * 0.5
        return {"y": made}

    return Call(
        {
            "x": x, "w": w, "y": np.empty((s.m, s.n), np.float32),
            "tokens": np.argsort(owner, kind="stable").astype(np.int32), "counts": counts,
            "starts": (np.cumsum(counts) - counts).astype(np.int32), "adapters": names, "scaling": 0.5,
            "stride_wa": s.n * s.k, "EVEN_K": False, "PARTS": parts,
        },
        expected,
        grid=(parts * s.flat, len(names)),
        zeroed=True,
    )  # fmt: skip


@triton.jit
def one_token(x, w, y, N, K, PARTS: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One token: rows of the weight times the vector without a dot; parts of K are added by atomics."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    total = tl.zeros((BN,), tl.float32)
    for _ in range(tl.cdiv(K, BK * PARTS)):
        vector = tl.load(x + k, mask=k < K, other=0.0, eviction_policy="evict_last").to(tl.float32)
        rows = tl.load(w + n[:, None] * K + k[None, :], mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        total += tl.sum(rows.to(tl.float32) * vector[None, :], axis=1)
        k += BK * PARTS
    tl.atomic_add(y + n, total, mask=n < N)


def _one_token(draw: Draw, s: Sizes, parts: int = 3) -> Call:
    x, w = draw.dense(s.k), draw.pruned(s.n, s.k)
    return Call(
        {"x": x, "w": w, "y": np.empty(s.n, np.float32), "PARTS": parts},
        lambda: {"y": wide(w) @ wide(x)},
        grid=(s.grid[1], parts),
        zeroed=True,
        library=lambda given: given["w"] @ given["x"],
    )


@triton.jit
def chunk_scan(
    scores, x, steps, decay, c, w, y, M, N, K, HEADS_A_GROUP, stride_cg, stride_wh,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Mamba 2's scan of a chunk: C by the pruned states of each head, scaled by decay; then the causal part, up to the diagonal."""
    head = tl.program_id(2)
    group = head // HEADS_A_GROUP
    tiles_n = tl.cdiv(N, BN)
    tile_m = tl.program_id(0) // tiles_n
    m = tile_m * BM + tl.arange(0, BM)
    n = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    of_row = tl.load(decay + head * M + m, mask=m < M, other=0.0).to(tl.float32)
    c_at = c + group * stride_cg + m[:, None] * K + k[None, :]
    w_at = w + head * stride_wh + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        one = tl.load(c_at, mask=(m[:, None] < M) & (k[None, :] < K - first), other=0.0)
        two = tl.load(w_at, mask=(k[:, None] < K - first) & (n[None, :] < N), other=0.0).to(c.dtype.element_ty)
        total += tl.dot(one, two)
        c_at += BK
        w_at += BK
    total *= tl.exp(of_row)[:, None]
    for first in range(0, min((tile_m + 1) * BM, M), 16):
        j = first + tl.arange(0, 16)
        score_at = scores + group * M * M + m[:, None] * M + j[None, :]
        score = tl.load(score_at, mask=(m[:, None] < M) & (j[None, :] < M), other=0.0).to(tl.float32)
        of_column = tl.load(decay + head * M + j, mask=j < M, other=0.0).to(tl.float32)
        score *= tl.exp(of_row[:, None] - of_column[None, :])
        score *= tl.load(steps + head * M + j, mask=j < M, other=0.0).to(tl.float32)[None, :]
        score = tl.where(m[:, None] >= j[None, :], score, 0.0).to(x.dtype.element_ty)
        x_at = x + head * M * N + j[:, None] * N + n[None, :]
        total += tl.dot(score, tl.load(x_at, mask=(j[:, None] < M) & (n[None, :] < N), other=0.0))
    y_at = y + head * M * N + m[:, None] * N + n[None, :]
    tl.store(y_at, total, mask=(m[:, None] < M) & (n[None, :] < N))


def _scan(draw: Draw, s: Sizes, in_group: int = 2) -> Call:
    """m: positions of the chunk. n: numbers of a head. k: numbers of a state. Few heads beside those of a model."""
    heads = 80 if s.m >= 256 else 4
    groups = heads // in_group
    scores, x = draw.dense(groups, s.m, s.m), draw.dense(heads, s.m, s.n)
    c, w = draw.dense(groups, s.m, s.k), draw.pruned(heads, s.n, s.k)
    decay = -np.cumsum(draw.rng.uniform(0, 0.1, (heads, s.m)), 1).astype(np.float32)
    steps = draw.rng.uniform(0, 1, (heads, s.m)).astype(np.float32)

    def expected() -> dict[str, Array]:
        fall = wide(decay)
        states = np.exp(fall)[:, :, None] * (wide(c).repeat(in_group, 0) @ wide(w).transpose(0, 2, 1))
        # Above the diagonal the difference is positive and its exponential may overflow.
        factors = np.exp(np.minimum(fall[:, :, None] - fall[:, None, :], 0)) * wide(steps)[:, None, :]
        return {"y": states + np.tril(wide(scores).repeat(in_group, 0) * factors) @ wide(x)}

    return Call(
        {
            "scores": scores, "x": x, "steps": steps, "decay": decay, "c": c, "w": w,
            "y": np.empty((heads, s.m, s.n), np.float32), "HEADS_A_GROUP": in_group, "stride_cg": s.m * s.k,
            "stride_wh": s.n * s.k,
        },
        expected,
        grid=(s.flat, 1, heads),
        operations=2.0 * heads * s.m * s.n * (s.k + s.m / 2),
    )  # fmt: skip


@triton.jit
def gradient_through_silu(
    dy, w, before, dx, M, N, K, stride_wn, stride_wk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """The gradient of a layer's input: dx [M, K] = dy [M, N] times silu' of `before`, by w [N, K], pruned along N."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, N, BK):
        n = first + tl.arange(0, BK)
        inside = (m[:, None] < M) & (n[None, :] < N)
        slope = tl.load(dy + m[:, None] * N + n[None, :], mask=inside, other=0.0).to(tl.float32)
        value = tl.load(before + m[:, None] * N + n[None, :], mask=inside, other=0.0).to(tl.float32)
        gate = tl.sigmoid(value)
        slope = (slope * gate * (1 + value * (1 - gate))).to(tl.float16)
        w_at = w + n[:, None] * stride_wn + k[None, :] * stride_wk
        two = tl.load(w_at, mask=(n[:, None] < N) & (k[None, :] < K), other=0.0)
        total = tl.dot(slope, two, total)
    inside = (m[:, None] < M) & (k[None, :] < K)
    tl.store(dx + m[:, None] * K + k[None, :], total.to(tl.float16), mask=inside)


def _gradient(draw: Draw, s: Sizes) -> Call:
    """k: the layer's outputs, which the kernel calls N. n: its inputs."""
    dy, before, w = draw.dense(s.m, s.k), draw.dense(s.m, s.k), swapped(draw.pruned(s.n, s.k))

    def expected() -> dict[str, Array]:
        value = wide(before)
        gate = sigmoid(value)
        return {"dx": (wide(dy) * gate * (1 + value * (1 - gate))) @ wide(w)}

    return Call(
        {
            "dy": dy, "w": w, "before": before, "dx": np.empty((s.m, s.n), np.float16), "N": s.k, "K": s.n,
            "stride_wn": s.n, "stride_wk": 1,
        },
        expected,
        outputs=("dx",),
        axes={"w": -2},
    )  # fmt: skip


@triton.jit
def rows_to_integers(x, w, w_scale, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of x become 8-bit integers in the kernel: a loop for the greatest of each row, then one for the product."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    greatest = tl.full((BM,), 1e-6, tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        greatest = tl.maximum(greatest, tl.max(tl.abs(one.to(tl.float32)), 1))
    scale = greatest / 127.0
    total = tl.zeros((BM, BN), tl.int32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        whole = tl.floor(one.to(tl.float32) / scale[:, None] + 0.5).to(tl.int8)
        two = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0)
        total = tl.dot(whole, two, total, out_dtype=tl.int32)
    result = total.to(tl.float32) * scale[:, None] * tl.load(w_scale + n, mask=n < N, other=0.0)[None, :]
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], result.to(y.dtype.element_ty), mask=inside)


def _integers(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(s.n, s.k, element="s8")
    w_scale = draw.rng.uniform(0.5, 1, s.n).astype(np.float32)

    def expected() -> dict[str, Array]:
        rows = wide(x)
        scale = wide(np.float32(np.abs(rows).max(1, keepdims=True) / 127))
        return {"y": np.floor(rows / scale + 0.5) @ wide(w).T * scale * w_scale}

    return Call({"x": x, "w": w, "w_scale": w_scale, "y": np.empty((s.m, s.n), np.float32)}, expected)


BATCH = (Sizes(1024, 2048, 2048, 128, 128, 64),)
LARGE = (Sizes(2048, 4096, 4096, 128, 128, 64),)

FORMS = (
    Form("batch with bias and relu", batch_template, _template, SMALL, BATCH, "other"),
    Form("batch of whole tiles", batch_of_tiles, _tiles, Sizes(64, 64, 128, 32, 32, 64), BATCH, "other"),
    Form(
        "shrinking adapters",
        adapters_shrink,
        _shrink,
        Sizes(40, 32, 208, 16, 16, 64),
        (Sizes(4096, 32, 4096, 32, 32, 128),),
        "other",
    ),
    Form(
        "one token in parts of K",
        one_token,
        _one_token,
        Sizes(1, 56, 400, 1, 16, 64),
        (Sizes(1, 4096, 4096, 1, 32, 256),),
        "other",
    ),
    Form(
        "scan of a chunk",
        chunk_scan,
        _scan,
        Sizes(40, 64, 128, 32, 64, 64),
        (Sizes(256, 64, 128, 64, 64, 64),),
        "other",
    ),
    Form("gradient through silu", gradient_through_silu, _gradient, SMALL, LARGE, "other"),
    Form(
        "rows to 8-bit integers",
        rows_to_integers,
        _integers,
        Sizes(40, 56, 320, 32, 32, 128),
        (Sizes(1024, 4096, 4096, 64, 128, 128),),
        "other",
    ),
)
