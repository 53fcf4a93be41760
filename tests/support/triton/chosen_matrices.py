"""Programs that choose a matrix of a weight, or none."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sum_of_rows(x, w, m, n, rows, columns, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = K - start
        one = tl.load(
            x + m[:, None] * K + start + k[None, :], mask=(m < rows)[:, None] & (k < left)[None, :], other=0.0
        )
        two = tl.load(
            w + n[:, None] * K + start + k[None, :], mask=(n < columns)[:, None] & (k < left)[None, :], other=0.0
        )
        total = tl.dot(one, two.T, total)
    return total


@triton.jit
def experts_if_any(x, w, y, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The grid may have more programs than experts."""
    expert = tl.program_id(2)
    if expert < E:
        m = tl.program_id(0) * BM + tl.arange(0, BM)
        n = tl.program_id(1) * BN + tl.arange(0, BN)
        total = sum_of_rows(x, w + expert * N * K, m, n, M, N, K, BM, BN, BK)
        at = y + expert * M * N + m[:, None] * N + n[None, :]
        tl.store(at, total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def unless_unused(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """An axis of the grid that numbers nothing."""
    if tl.program_id(2) >= 1:
        return
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = sum_of_rows(x, w, m, n, M, N, K, BM, BN, BK)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def routed_or_shared(x, w, shared, y, E, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The last matrix of the grid is a tensor of its own."""
    expert = tl.program_id(2)
    if expert == E:
        weight = shared
    else:
        weight = w + expert * N * K
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = sum_of_rows(x, weight, m, n, M, N, K, BM, BN, BK)
    at = y + expert * M * N + m[:, None] * N + n[None, :]
    tl.store(at, total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def pages_of_columns(x, w, y, table, M, N, K, PAGE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Parts of K in any order: w is [pages, N, PAGE]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, PAGE)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, PAGE)):
        page = tl.load(table + step).to(tl.int64)
        column = step * PAGE + k
        one = tl.load(x + m[:, None] * K + column[None, :], mask=(m < M)[:, None] & (column < K)[None, :], other=0.0)
        two = tl.load(w + page * N * PAGE + n[:, None] * PAGE + k[None, :], mask=(n < N)[:, None], other=0.0)
        total = tl.dot(one, two.T, total)
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])
