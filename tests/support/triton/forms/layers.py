"""Layers that are no plain product of two matrices: bias, batches, experts, split sums, two outputs, an operand that is scaled."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Array, Call, Draw, Form, Sizes, square, wide


@triton.jit
def by_pointers(y, x, w, bias, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [N, K], transposed, and bias: rows that wrap, and a loop that moves pointers."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + (m % M)[:, None] * K + k[None, :]
    w_at = w + (n % N)[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(x_at, mask=k[None, :] < K - step * BK, other=0.0)
        right = tl.load(w_at, mask=k[:, None] < K - step * BK, other=0.0)
        total = tl.dot(left, right, total)
        x_at += BK
        w_at += BK
    total += tl.load(bias + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def batch(y, w, x, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [E, M, N] = w [E, M, K] times x [E, K, N]."""
    entry = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + entry * M * K + m[:, None] * K + k[None, :]
    x_at = x + entry * K * N + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        w_at += BK
        x_at += BK * N
    out = y + entry * M * N + m[:, None] * N + n[None, :]
    tl.store(out, total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def experts(y, x, w, expert, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] times w [expert of each BM rows, N, K], transposed."""
    block = tl.program_id(0)
    m = block * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + tl.load(expert + block) * N * K + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(w_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        x_at += BK
        w_at += BK
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def split_sums(y, w, x, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] += w [M, K] times x [N, K], transposed: K split over programs, which add their sums."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK * SPLIT)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK * SPLIT), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK * SPLIT) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
        w_at += BK * SPLIT
        x_at += BK * SPLIT
    tl.atomic_add(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def row_maxima(y, w, x, most, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [N, K], transposed, and the greatest result of each row of a tile: two outputs."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    w_at = w + m[:, None] * K + k[None, :]
    x_at = x + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(w_at, mask=(m[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        right = tl.load(x_at, mask=(k[:, None] < K - step * BK) & (n[None, :] < N), other=0.0)
        total += tl.dot(left, right)
        w_at += BK
        x_at += BK
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=inside)
    tl.store(most + tl.program_id(1) * M + m, tl.max(tl.where(inside, total, float("-inf")), axis=1), mask=m < M)


@triton.jit
def dequantized(y, w, x, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = w [M, K] times x [N, K] of int8 with a scale for each row, transposed."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    by = tl.load(scale + n, mask=n < N, other=0.0)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        at = first + k
        left = tl.load(w + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        right = tl.load(x + n[None, :] * K + at[:, None], mask=(at[:, None] < K) & (n[None, :] < N), other=0)
        total = tl.dot(left, (right.to(tl.float32) * by[None, :]).to(tl.float16), total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


ENTRIES = 4
"""Matrices of a batch, and experts of a layer."""

SPLIT = 2


def _with_bias(draw: Draw, s: Sizes) -> Call:
    x, w, bias = draw.dense(s.m, s.k), draw.pruned(s.n, s.k), draw.dense(s.n)
    given = {"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "bias": bias}
    return Call(given, lambda: {"y": wide(x) @ wide(w).T + wide(bias)}, library=lambda a: a["x"] @ a["w"].T)


def _batch(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(ENTRIES, s.m, s.k), draw.dense(ENTRIES, s.k, s.n)
    return Call(
        {"y": np.empty((ENTRIES, s.m, s.n), np.float16), "w": w, "x": x},
        lambda: {"y": wide(w) @ wide(x)},
        grid=(*s.grid, ENTRIES),
        operations=2.0 * ENTRIES * s.m * s.n * s.k,
        library=lambda a: a["w"] @ a["x"],
    )


def _experts(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(ENTRIES, s.n, s.k)
    expert = draw.rng.integers(0, ENTRIES, s.grid[0], np.int32)
    rows = np.repeat(expert, s.BM)[: s.m]

    def expected() -> dict[str, Array]:
        parts = [(rows == each)[:, None] * (wide(x) @ wide(w[each]).T) for each in range(ENTRIES)]
        return {"y": np.sum(parts, axis=0)}

    return Call({"y": np.empty((s.m, s.n), np.float16), "x": x, "w": w, "expert": expert}, expected)


def _split_sums(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.n, s.k)
    given = {"y": np.empty((s.m, s.n), np.float32), "w": w, "x": x}
    grid, plain = (*s.grid, SPLIT), lambda a: a["w"] @ a["x"].T
    return Call(given, lambda: {"y": wide(w) @ wide(x).T}, grid=grid, zeroed=True, library=plain)


def _row_maxima(draw: Draw, s: Sizes) -> Call:
    w, x = draw.pruned(s.m, s.k), draw.dense(s.n, s.k)
    most = np.empty((s.grid[1], s.m), np.float32)

    def expected() -> dict[str, Array]:
        y = wide(w) @ wide(x).T
        return {"y": y, "most": np.stack([y[:, n : n + s.BN].max(axis=1) for n in range(0, s.n, s.BN)])}

    arguments = {"y": np.empty((s.m, s.n), np.float16), "w": w, "x": x, "most": most}
    return Call(arguments, expected, outputs=("y", "most"), library=lambda a: a["w"] @ a["x"].T)


def _dequantized(draw: Draw, s: Sizes) -> Call:
    w, x, scale = draw.pruned(s.m, s.k), draw.dense(s.n, s.k, element="s8"), draw.dense(s.n) / np.float16(100)

    def expected() -> dict[str, Array]:
        return {"y": wide(w) @ wide((x * scale[:, None].astype(np.float32)).astype(np.float16)).T}

    return Call({"y": np.empty((s.m, s.n), np.float16), "w": w, "x": x, "scale": scale}, expected)


LARGE = square(4096, (128, 256, 64), (128, 128, 64), (64, 64, 64), (32, 64, 64))
SMALL = Sizes(70, 104, 136, 64, 64, 64)

FORMS = (
    Form("layer by pointers", by_pointers, _with_bias, SMALL, LARGE),
    Form(
        "layer of 16 rows",
        by_pointers,
        _with_bias,
        Sizes(16, 104, 136, 32, 64, 64),
        tuple(Sizes(16, 4096, 4096, *tile) for tile in ((128, 128, 64), (64, 64, 64), (32, 64, 64))),
    ),
    Form("batch", batch, _batch, SMALL, square(1024, (128, 128, 64), (64, 64, 64))),
    Form("experts by block", experts, _experts, SMALL, LARGE[1:3], kind="experts"),
    Form("split sums", split_sums, _split_sums, SMALL, LARGE[:3], constants={"SPLIT": SPLIT}),
    Form("row maxima", row_maxima, _row_maxima, SMALL, LARGE),
    Form("operand scaled", dequantized, _dequantized, SMALL, LARGE[1:3], kind="other"),
)
