"""Weights of several matrices in one matrix: below each other, beside each other, as a user stores them without a batch."""

from __future__ import annotations

from functools import partial

import numpy as np
import triton
import triton.language as tl

from louver.measure.forms import Call, Draw, Form, Sizes, wide
from support.triton.public.common import swapped

PARTS = 3


@triton.jit
def part_of_a_matrix(
    x, w, y, M, N, K, stride_part, stride_wk, stride_wn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MASK_N: tl.constexpr = False,
):  # fmt: skip
    """A product of each part: the last axis of the grid chooses it. Without MASK_N, N is whole tiles."""
    part = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        w_at = w + part * stride_part + k[:, None] * stride_wk + n[None, :] * stride_wn
        inside = (k < K)[:, None] & (n < N)[None, :] if MASK_N else (k < K)[:, None]
        total = tl.dot(one, tl.load(w_at, mask=inside, other=0.0), total)
    inside = (m < M)[:, None] & (n < N)[None, :] if MASK_N else (m < M)[:, None]
    tl.store(y + part * M * N + m[:, None] * N + n[None, :], total, mask=inside)


@triton.jit
def parts_in_turn(
    x, w, y, M, N, K, stride_part, stride_wk, stride_wn, PARTS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same, with the parts in a loop of each program: no product, because it stores several times."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    for part in range(PARTS):
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for first in range(0, K, BK):
            k = first + tl.arange(0, BK)
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            w_at = w + part * stride_part + k[:, None] * stride_wk + n[None, :] * stride_wn
            total = tl.dot(one, tl.load(w_at, mask=(k < K)[:, None], other=0.0), total)
        tl.store(y + part * M * N + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None])


@triton.jit
def rows_of_parts(
    x, w, y, M, N, K, PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Parts below each other, [parts · K, N]. The rows of the weight are counted through all parts, and masked at the end of one."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    for part in range(PARTS):
        row = part * K + tl.arange(0, BK)
        w_at = w + row[:, None] * N + n[None, :]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            k = step * BK + tl.arange(0, BK)
            one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
            two = tl.load(w_at + step * BK * N, mask=row[:, None] < part * K + K - step * BK, other=0.0)
            total = tl.dot(one, two, total)
        tl.store(y + part * M * N + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None])


def _parts(draw: Draw, s: Sizes, stored: str, turns: bool) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(PARTS, s.n, s.k)
    parts, n, k = w.shape
    array, axis, strides = {
        "[parts · K, N]": (w.transpose(0, 2, 1).reshape(parts * k, n), -2, (k * n, n, 1)),
        "[K, parts · N]": (w.transpose(2, 0, 1).reshape(k, parts * n), -2, (n, parts * n, 1)),
        "[N, parts · K]": (w.transpose(1, 0, 2).reshape(n, parts * k), -1, (k, 1, parts * k)),
        "[N, parts, K]": (w.transpose(1, 0, 2), -1, (k, 1, parts * k)),
        "[parts · N, K]": (w.reshape(parts * n, k), -1, (n * k, 1, k)),
    }[stored]
    more = {"PARTS": parts} if turns else {}
    return Call(
        {
            "x": x, "w": np.ascontiguousarray(array), "y": np.empty((parts, s.m, s.n), np.float32),
            **dict(zip(("stride_part", "stride_wk", "stride_wn"), strides, strict=True)), **more,
        },
        lambda: {"y": wide(x) @ wide(w).transpose(0, 2, 1)},
        axes={"w": axis},
        grid=s.grid if turns else (*s.grid, parts),
        operations=2.0 * parts * s.m * s.n * s.k,
    )  # fmt: skip


def _rows(draw: Draw, s: Sizes) -> Call:
    x, w = draw.dense(s.m, s.k), draw.pruned(PARTS, s.n, s.k)
    return Call(
        {"x": x, "w": swapped(w).reshape(-1, s.n), "y": np.empty((PARTS, s.m, s.n), np.float32), "PARTS": PARTS},
        lambda: {"y": wide(x) @ wide(w).transpose(0, 2, 1)},
        axes={"w": -2},
        grid=s.grid,
        operations=2.0 * PARTS * s.m * s.n * s.k,
    )


SIZES = Sizes(40, 96, 144, 32, 32, 64)
LARGE = (Sizes(2048, 2048, 2048, 128, 128, 64),)

FORMS = (
    Form("rows of parts below each other", rows_of_parts, _rows, SIZES, LARGE, "experts"),
    *(
        Form(
            f"parts of a matrix {stored}{', in turn' if turns else ''}",
            parts_in_turn if turns else part_of_a_matrix,
            partial(_parts, stored=stored, turns=turns),
            SIZES,
            LARGE,
            "experts",
        )
        for turns in (False, True)
        for stored in ("[parts · K, N]", "[K, parts · N]", "[N, parts · K]", "[N, parts, K]", "[parts · N, K]")
    ),
)
