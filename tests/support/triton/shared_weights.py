"""Batches whose matrices may share a weight: a stride of 0, given at the launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def batch(
    x, w, y, M, N, K, stride_xb, stride_wb, stride_wk, stride_wn, stride_yb, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """One axis of matrices."""
    entry = tl.program_id(2)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    x_at = x + entry * stride_xb + m[:, None] * K + k[None, :]
    w_at = w + entry * stride_wb + k[:, None] * stride_wk + n[None, :] * stride_wn
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        one = tl.load(x_at, mask=(m[:, None] < M) & (k[None, :] < left), other=0.0)
        two = tl.load(w_at, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        total += tl.dot(one, two)
        x_at += BK
        w_at += BK * stride_wk
    y_at = y + entry * stride_yb + m[:, None] * N + n[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def heads_of_batch(
    x, w, y, layer, H, M, N, K, stride_wl, stride_wb, stride_wh, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Heads of batches of a layer."""
    entry = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    of_layer = w + layer * stride_wl + (entry // H) * stride_wb + (entry % H) * stride_wh
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        one = tl.load(
            x + (entry * M + m[:, None]) * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0
        )
        two = tl.load(of_layer + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        total = tl.dot(one, two.T, total)
    y_at = y + (entry * M + m[:, None]) * N + n[None, :]
    tl.store(y_at, total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def batch_in_turns(
    x, w, y, turns, M, N, K, stride_wb, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """One axis of matrices, by a kernel whose number of turns must be compiled in, as Triton compiles in a 1."""
    entry = tl.program_id(2)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    for turn in tl.static_range(turns):
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            one = tl.load(
                x + (entry * M + m[:, None]) * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0
            )
            two_at = w + entry * stride_wb + n[:, None] * K + k[None, :]
            two = tl.load(two_at, mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
            total = tl.dot(one, two.T, total)
        y_at = y + (turn * M + entry * M + m[:, None]) * N + n[None, :]
        tl.store(y_at, total.to(y.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))
