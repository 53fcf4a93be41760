"""Gate and up rows of one weight, the second half at an offset of its own."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gate_and_up(
    x, w, y, M, N, K, stride_wn, half, WRAP: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """WRAP: whether rows beyond the last one wrap, or are masked. ROWS: whether the offset is counted in rows, or given."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + (m % M if WRAP else m)[:, None] * K + k[None, :]
    gate_at = w + (n % N if WRAP else n)[:, None] * stride_wn + k[None, :]
    up_at = gate_at + (N * stride_wn if ROWS else half)
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inner = (k < K - start)[None, :]
        outer = inner if WRAP else (n < N)[:, None] & inner
        one = tl.load(x_at, mask=inner if WRAP else (m < M)[:, None] & inner, other=0.0)
        gate = tl.dot(one, tl.load(gate_at, mask=outer, other=0.0).T, gate)
        up = tl.dot(one, tl.load(up_at, mask=outer, other=0.0).T, up)
        x_at += BK
        gate_at += BK
        up_at += BK
    total = gate * tl.sigmoid(gate) * up
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])


@triton.jit
def of_fixed_sizes(
    x, w, y, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """The same where numbers are compiled in."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    gate_at = w + (n % N)[:, None] * K + k[None, :]
    gate = tl.zeros((BM, BN), tl.float32)
    up = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        inner = (k < K - start)[None, :]
        one = tl.load(x + (m % M)[:, None] * K + start + k[None, :], mask=inner, other=0.0)
        gate = tl.dot(one, tl.load(gate_at, mask=inner, other=0.0).T, gate)
        up = tl.dot(one, tl.load(gate_at + N * K, mask=inner, other=0.0).T, up)
        gate_at += BK
    total = gate * tl.sigmoid(gate) * up
    tl.store(y + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m < M)[:, None] & (n < N)[None, :])
