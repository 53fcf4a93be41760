"""A product whose sparse tile has offsets that are replaced outside of the tensor, without a mask."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def replaced(
    x, w, y, M, N, K, FIRST: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y[m, n] = x[m, k] · w[n, k]. FIRST: whether w is loaded before x."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        if FIRST:
            right = tl.load(w + tl.where((n[None, :] < N) & (k[:, None] < K), n[None, :] * K + k[:, None], 0))
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        if not FIRST:
            right = tl.load(w + tl.where((n[None, :] < N) & (k[:, None] < K), n[None, :] * K + k[:, None], 0))
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def replaced_inside(
    x, w, y, M, N, K, START, SUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """The same where no mask can stand for the choice. SUM: it is a term of the offsets, which begin at START; else all columns are stored."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        offsets = tl.where((n[None, :] < N) & (k[:, None] < K), n[None, :] * K + k[:, None], 0)
        right = tl.load(w + (START + offsets if SUM else offsets))
        total = tl.dot(left, right, total)
    stored = (m[:, None] < M) & (n[None, :] < N) if SUM else m[:, None] < M
    tl.store(y + m[:, None] * N + n[None, :], total, mask=stored)


@triton.jit
def limited(
    x, w, y, M, N, K, HOW: tl.constexpr, OUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """y[m, n] = x[m, k] · w[n, k]. HOW: rows and columns of w are limited each, not their offset. OUT: whether the sums are halved."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        row, column = n % N, k % K
        if HOW == "minimum":
            row, column = tl.minimum(n, N - 1), tl.minimum(k, K - 1)
        if HOW == "where":
            row, column = tl.where(n < N, n, N - 1), tl.where(k < K, k, 0)
        left = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(w + row[None, :] * K + column[:, None])
        total = tl.dot(left, right, total)
    if OUT:
        one, two = tl.split(total.reshape(BM, BN // 2, 2))
        half = tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2)
        tl.store(y + m[:, None] * N + half[None, :], one + two, mask=(m[:, None] < M) & (half[None, :] < N // 2))
    else:
        tl.store(y + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def in_turn(x, w, y, M, N, K, LENGTH, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y[m, n] = x[m, k] · w[n % N, k % K], with LENGTH elements k."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, LENGTH, BK):
        k = first + tl.arange(0, BK)
        left = tl.load(x + m[:, None] * LENGTH + k[None, :], mask=m[:, None] < M, other=0.0)
        right = tl.load(w + (n % N)[None, :] * K + (k % K)[:, None])
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * (tl.num_programs(1) * BN) + n[None, :], total, mask=m[:, None] < M)


@triton.jit
def replaced_everywhere(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """No load has a mask: a choice behind that of x makes zeros."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    row, column = tl.where(m < M, m, 0), tl.where(n < N, n, 0)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        inner = tl.where(k < K, k, 0)
        one = tl.load(x + row[:, None] * K + inner[None, :])
        one = tl.where((k < K)[None, :], one, 0.0)
        two = tl.load(w + column[None, :] * K + inner[:, None])
        total = tl.dot(one, two, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])
