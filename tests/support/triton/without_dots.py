"""Matrices times vectors without a dot: elements are multiplied, and summed along K."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def down_columns(x, w, y, N, K, BN: tl.constexpr, BK: tl.constexpr, WIDE: tl.constexpr):
    """y [N] = x [K] times w [K, N], which is sparse along K, summed in each step in the elements' type, or in f32."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    w_at, x_at = w + k[:, None] * N + n[None, :], x + k
    total = tl.zeros((BN,), dtype=tl.float32)
    for _ in range(0, K, BK):
        a, b = tl.load(x_at), tl.load(w_at)
        if WIDE:
            a, b = a.to(tl.float32), b.to(tl.float32)
        total += tl.sum(a[:, None] * b, axis=0).to(tl.float32)
        x_at += BK
        w_at += BK * N
    tl.store(y + n, total)


@triton.jit
def along_rows(x, w, y, N, K, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr):
    """y [N] = w [N, K] times x [K], with totals of type SUM."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BN,), dtype=SUM) + 1.5
    for step in range(0, K, BK):
        a, b = tl.load(x + step + k), tl.load(w + n[:, None] * K + (step + k)[None, :])
        total += tl.sum(a[None, :].to(SUM) * b.to(SUM), axis=1)
    tl.store(y + n, total)


@triton.jit
def whole_number(x, w, y, K, BK: tl.constexpr):
    """y [rows] = w [rows, K] times x [K], a row a program: the total is a number."""
    row, k = tl.program_id(0), tl.arange(0, BK)
    total = 0.0
    for step in range(0, K, BK):
        a, b = tl.load(x + step + k), tl.load(w + row * K + step + k)
        total += tl.sum(a.to(tl.float32) * b.to(tl.float32))
    tl.store(y + row, total)


@triton.jit
def batch(x, w, y, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N]: each row of x [M, K] times its own matrix of w [M, N, K], in tiles of three axes."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=x.dtype.element_ty)
    for step in range(K // BK):
        a = tl.load(x + m[:, None] * K + (step * BK + k)[None, :])
        b = tl.load(w + m[None, :, None] * N * K + n[:, None, None] * K + (step * BK + k)[None, None, :])
        a, _ = tl.broadcast(a, b)
        total += tl.trans(tl.sum(a * b, axis=2))
    tl.store(y + m[:, None] * N + n[None, :], total)


@triton.jit
def where_not_zero(x, w, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """y [N] = x [K] times w [K, N], sparse along K. Rows of w that meet a zero of x are not loaded."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        a = tl.load(x + k, mask=k < K, other=0.0)
        inside = (k < K)[:, None] & (n < N)[None, :] & (a != 0)[:, None]
        b = tl.load(w + k[:, None] * N + n[None, :], mask=inside, other=0.0)
        total += tl.sum(a[:, None].to(tl.float32) * b.to(tl.float32), axis=0)
    tl.store(y + n, total, mask=n < N)


@triton.jit
def chosen_rows(e, w, rows, out, M, D, BM: tl.constexpr, BD: tl.constexpr, WIDE: tl.constexpr = False):
    """out [M] += e [M, D] times row rows[m] of w [., D], a part of D in each program."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BD + tl.arange(0, BD)
    a = tl.load(e + (m % M)[:, None] * D + d[None, :])
    b = tl.load(w + tl.load(rows + m % M)[:, None] * D + d[None, :])
    if WIDE:
        a, b = a.to(tl.float32), b.to(tl.float32)
    tl.atomic_add(out + m, tl.sum((a * b).to(tl.float32), 1), mask=m < M)


@triton.jit
def of_parts(x, w, y, P, N, K, BN: tl.constexpr, BK: tl.constexpr, LAST: tl.constexpr):
    """y [N] = the sum over p of w [N, K] times x [p, K]; with LAST, the last step counts twice: it is read behind the loops."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    total, last = tl.zeros((BN,), dtype=tl.float32), tl.zeros((BN,), dtype=tl.float32)
    for p in range(P):
        for step in range(0, K, BK):
            a, b = tl.load(x + p * K + step + k), tl.load(w + n[:, None] * K + (step + k)[None, :])
            found = tl.sum(a[None, :].to(tl.float32) * b.to(tl.float32), axis=1)
            total += found
            if LAST:
                last = found
    tl.store(y + n, total + last)
