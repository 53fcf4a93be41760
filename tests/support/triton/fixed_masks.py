"""Kernels whose pointers move in a loop and whose masks do not, as many published kernels have them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fixed_k_mask(x, w, y, M, N, K, LIMIT, sxm, swn, sym, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """The mask of K is that of the first tile. It is right for whole tiles, and for LIMIT = K in one tile."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    x_at = x + rows[:, None] * sxm + ks[None, :]
    w_at = w + columns[None, :] * swn + ks[:, None]
    inside = (rows[:, None] < M) & (ks[None, :] < LIMIT)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, TK)):
        total = tl.dot(tl.load(x_at, mask=inside, other=0.0), tl.load(w_at), total)
        x_at += TK
        w_at += TK
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def fixed_row_mask(x, w, y, M, N, K, sxm, swn, sym, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """One program has all tiles of rows, whose mask is that of the first one."""
    rows = tl.arange(0, TM)
    columns = tl.program_id(0) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    x_row = x + rows[:, None] * sxm + ks[None, :]
    y_at = y + rows[:, None] * sym + columns[None, :]
    for _ in range(tl.cdiv(M, TM)):
        total = tl.zeros((TM, TN), dtype=tl.float32)
        for k in range(0, K, TK):
            tile = tl.load(x_row + k, mask=(rows[:, None] < M) & (k + ks[None, :] < K), other=0.0)
            weights = tl.load(w + columns[None, :] * swn + k + ks[:, None], mask=k + ks[:, None] < K, other=0.0)
            total = tl.dot(tile, weights, total)
        tl.store(y_at, total, mask=(rows[:, None] < M) & (columns[None, :] < N))
        x_row += TM * sxm
        y_at += TM * sym


@triton.jit
def wide_mask(
    x, w, y, M, N, K, LIMIT, sxm, swn, sym, ROWS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """The mask of K may go beyond a row. M is whole tiles, or ROWS are masked."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, K, TK):
        inside = k + ks[None, :] < LIMIT
        if ROWS:
            inside = inside & (rows[:, None] < M)
        tile = tl.load(x + rows[:, None] * sxm + k + ks[None, :], mask=inside, other=0.0)
        weights = tl.load(w + columns[None, :] * swn + k + ks[:, None], mask=k + ks[:, None] < K, other=0.0)
        total = tl.dot(tile, weights, total)
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def whole_steps(
    x, w, y, M, N, K, sxm, swn, sym, BOTH: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """The mask of K is that of the first tile, of one operand or of both: right if K is whole tiles, or in one."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    x_at = x + rows[:, None] * sxm + ks[None, :]
    w_at = w + columns[None, :] * swn + ks[:, None]
    x_in = (rows[:, None] < M) & (ks[None, :] < K)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for i in range(tl.cdiv(K, TK)):
        if BOTH:
            w_in = (columns[None, :] < N) & (ks[:, None] < K)
        else:
            w_in = (columns[None, :] < N) & (i * TK + ks[:, None] < K)
        total = tl.dot(tl.load(x_at, mask=x_in, other=0.0), tl.load(w_at, mask=w_in, other=0.0), total)
        x_at += TK
        w_at += TK
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def shifted(x, w, y, M, N, K, SHIFT, sxm, swn, sym, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Rows of x from the second one on, from column SHIFT on. Below 0, they begin in the row before."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for k in range(0, K, TK):
        at = k + SHIFT + ks
        tile = tl.load(
            x + (1 + rows[:, None]) * sxm + at[None, :], mask=(rows[:, None] < M) & (at[None, :] < K), other=0.0
        )
        weights = tl.load(
            w + columns[None, :] * swn + k + ks[:, None], mask=(columns[None, :] < N) & (k + ks[:, None] < K), other=0.0
        )
        total = tl.dot(tile, weights, total)
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def unmasked_experts(
    x, w, ids, y, M, N, K, sxm, swe, swn, sym, DOWN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Nothing masks K, so the last step goes on into what is behind a row, or is left out (DOWN)."""
    expert = tl.load(ids + tl.program_id(0)).to(tl.int64)
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    for i in range(K // TK if DOWN else tl.cdiv(K, TK)):
        k = i * TK + ks
        tile = tl.load(x + rows[:, None] * sxm + k[None, :], mask=rows[:, None] < M, other=0.0)
        weights = tl.load(w + expert * swe + columns[None, :] * swn + k[:, None], mask=columns[None, :] < N, other=0.0)
        total = tl.dot(tile, weights, total)
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))
