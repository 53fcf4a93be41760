"""Operands of 8 and 16 bits that are converted to f32 and scaled before a dot: multiplied as f16 or bf16, and scaled behind it."""

from __future__ import annotations

import importlib.util
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

M, N, K, BLOCK = 40, 48, 192, 64


@triton.jit
def scaled(
    x, w, y, of_x, of_w, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ALONG: tl.constexpr, TURNED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = (x * of_x) @ (w * of_w).T, with a scale for each row and BK columns of x, and for all rows of w. ALONG: of_x has one
    for each column instead.
    """
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = step * BK + tl.arange(0, BK)
        one = tl.load(x + m[:, None] * K + k[None, :], mask=(m < M)[:, None] & (k < K)[None, :], other=0.0)
        other = tl.load(w + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        if ALONG:
            scale = tl.load(of_x + k, mask=k < K, other=0.0)[None, :]
        else:
            scale = tl.load(of_x + m * (K // BK) + step, mask=m < M, other=0.0)[:, None]
        left = one.to(tl.float32) * scale
        if TURNED:
            right = tl.trans(other).to(tl.float32) * tl.load(of_w + step) * 0.5
        else:
            right = tl.trans(tl.load(of_w + step) * 0.5 * other.to(tl.float32))
        total = tl.dot(left, right, total)
    tl.store(y + m[:, None] * N + n[None, :], total, mask=(m < M)[:, None] & (n < N)[None, :])


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    ("of_x", "of_w", "along", "product"),
    [
        (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn, False, "f16"),
        (ml_dtypes.float8_e5m2, np.float16, False, "f16"),
        (ml_dtypes.bfloat16, np.int8, False, "bf16"),
        (np.float16, np.float16, False, "f16"),
        (np.float16, np.float16, True, "tf32"),
    ],
)
def test_scales_multiply_the_sum(
    rng: np.random.Generator, of_x: Any, of_w: Any, along: bool, product: str, turned: bool
) -> None:
    """Scales that differ along K stay before the dot, which rounds to tf32."""

    def drawn(shape: tuple[int, int], dtype: Any) -> np.ndarray:
        return (rng.integers(-99, 99, shape) if dtype is np.int8 else rng.standard_normal(shape)).astype(dtype)

    x, w = drawn((M, K), of_x), louver.prune(drawn((N, K), of_w), "2:4")
    rows, blocks = rng.uniform(0.5, 2, (M, K // BLOCK)), rng.uniform(0.5, 2, K // BLOCK)
    rows = (rng.uniform(0.5, 2, K) if along else rows).astype(np.float32)
    blocks, y = blocks.astype(np.float32), np.full((M, N), np.nan, np.float32)
    kernel, given = (
        louver.jit(scaled),
        (x, louver.compress(w, "2:4"), y, rows, blocks, M, N, K, along, turned, 32, 64, BLOCK),
    )
    ptx = kernel.explain[2, 1](*given).ptx
    assert f".f32.{product}.{product}" in ptx
    kernel.emulate[2, 1](*given)
    factors = rows.astype(np.float64) if along else np.repeat(rows.astype(np.float64), BLOCK, 1)
    one, other = x.astype(np.float64) * factors, w.astype(np.float64) * np.repeat(blocks, BLOCK) / 2
    bound = 2.0 ** (-9 if along else -20) * (np.abs(one) @ np.abs(other).T)
    assert (np.abs(y - one @ other.T) <= bound).all()
