"""Kernels that mask K in the last step alone, by a branch in the loop or by a step behind it, as many published kernels do."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def branch_in_loop(
    x, w, y, M, N, K, sxm, swk, swn, sym, HOW: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """HOW: how the branch asks for the last step."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    x_at = x + (rows % M)[:, None] * sxm + ks[None, :]
    w_at = w + (columns % N)[None, :] * swn + ks[:, None] * swk
    total = tl.zeros((TM, TN), dtype=tl.float32)
    steps = tl.cdiv(K, TK)
    for k in range(steps):
        if HOW == "below":
            whole = k < steps - 1
        elif HOW == "equal":
            whole = k != steps - 1
        elif HOW == "columns":
            whole = k * TK + TK <= K
        else:
            whole = K % TK == 0
        if whole:
            a = tl.load(x_at)
            b = tl.load(w_at)
            total = tl.dot(a, b, total)
        else:
            a = tl.load(x_at, mask=ks[None, :] < K - k * TK, other=0.0)
            b = tl.load(w_at, mask=ks[:, None] < K - k * TK, other=0.0)
            total = tl.dot(a, b, total)
        x_at += TK
        w_at += TK * swk
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def nested_branches(
    x, w, y, M, N, K, sxm, swk, swn, sym, HOW: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Rows are masked in all steps, K in the last two. HOW "store": the last step also stores, so its branch stays."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), dtype=tl.float32)
    in_rows, in_columns = (rows < M)[:, None], (columns < N)[None, :]
    for k in range(0, K, TK):
        ks = k + tl.arange(0, TK)
        x_at = x + rows[:, None] * sxm + ks[None, :]
        w_at = w + columns[None, :] * swn + ks[:, None] * swk
        if k + TK < K:
            if k + 2 * TK <= K:
                a = tl.load(x_at, mask=in_rows, other=0.0)
                b = tl.load(w_at, mask=in_columns, other=0.0)
            else:
                a = tl.load(x_at, mask=in_rows & (ks < K)[None, :], other=0.0)
                b = tl.load(w_at, mask=in_columns & (ks < K)[:, None], other=0.0)
        else:
            if HOW == "store":
                tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=in_rows & in_columns)
            a = tl.load(x_at, mask=in_rows & (ks < K)[None, :], other=0.0)
            b = tl.load(w_at, mask=in_columns & (ks < K)[:, None], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=in_rows & in_columns)


@triton.jit
def step_behind(
    x, w, y, M, N, K, sxm, swk, swn, sym, HOW: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Whole steps without a mask of K, then one step with it. HOW: whether the loop counts columns, or moves pointers."""
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    ks = tl.arange(0, TK)
    x_at = x + (rows % M)[:, None] * sxm + ks[None, :]
    w_at = w + (columns % N)[None, :] * swn + ks[:, None] * swk
    total = tl.zeros((TM, TN), dtype=tl.float32)
    whole = tl.cdiv(K, TK) - 1
    if HOW == "columns":
        for k in range(0, whole * TK, TK):
            total = tl.dot(tl.load(x_at + k), tl.load(w_at + k * swk), total)
        x_at += whole * TK
        w_at += whole * TK * swk
    else:
        for _ in range(whole):
            total = tl.dot(tl.load(x_at), tl.load(w_at), total)
            x_at += TK
            w_at += TK * swk
    left = ks + whole * TK < K
    a = tl.load(x_at, mask=left[None, :], other=0.0)
    b = tl.load(w_at, mask=left[:, None], other=0.0)
    total = tl.dot(a, b, total)
    tl.store(y + rows[:, None] * sym + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))
