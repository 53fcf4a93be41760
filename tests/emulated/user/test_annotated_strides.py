"""Integers with an annotated type: Triton does not compile in those that are 1. Louver does, as it does all others."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

M, N, K = 20, 40, 80


@triton.jit
def product(
    x, w, y, M: tl.int64, N, K, xm: tl.int64, xk: tl.int64, wn: tl.int64, wk: tl.int64, ym: tl.int64, yn: tl.int64,
    WRAP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y [M, N] = x [M, K] by w [N, K]. WRAP: rows of w begin again behind the last one, so that they are computed."""
    m, first, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN, tl.arange(0, BK)
    own = tl.arange(0, BN)
    n = first + (own % min(BN, N - first) if WRAP else own)
    xs = x + m[:, None] * xm + k[None, :] * xk
    ws = w + n[None, :] * wn + k[:, None] * wk
    total = tl.zeros((BM, BN), tl.float32)
    for done in range(0, K, BK):
        one = tl.load(xs, mask=(m < M)[:, None] & (k < K - done)[None, :], other=0.0)
        two = tl.load(ws, mask=(k < K - done)[:, None] & ((n < N) | WRAP)[None, :], other=0.0)
        total = tl.dot(one, two.to(one.dtype), total)
        xs += BK * xk
        ws += BK * wk
    columns = first + own
    tl.store(y + m[:, None] * ym + columns[None, :] * yn, total, mask=(m < M)[:, None] & (columns < N)[None, :])


KERNEL = louver.jit(product)
"""Kept, because it keeps what it has compiled."""


def call(rng: np.random.Generator, element: str, *, turned: bool = False, rows: int = M) -> tuple[tuple[Any, ...], Any]:
    """The arguments before the blocks, and the result. turned: y is the transpose of a row-major array. rows: of x."""
    dense = rng.integers(-3, 4, (N, K)) if element == "int8" else rng.standard_normal((N, K))
    dense = louver.prune(dense.astype(element), "2:4")
    x = rng.standard_normal((rows, K)).astype(np.float16)
    y = np.full((N, rows), np.nan, np.float32).T if turned else np.full((rows, N), np.nan, np.float32)
    strides = [each // 4 for each in y.strides]
    return (x, louver.compress(dense, "2:4"), y, rows, N, K, K, 1, K, 1, *strides), x.astype(float) @ dense.astype(
        float
    ).T


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("element", ["float16", "int8"])
def test_a_stride_of_1_is_read_as_such(rng: np.random.Generator, element: str, wrap: bool, turned: bool) -> None:
    given, right = call(rng, element, turned=turned)
    KERNEL.emulate[(2, 2)](*given, WRAP=wrap, BM=16, BN=32, BK=64)
    np.testing.assert_allclose(given[2], right, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("rows", [M, 1])
def test_a_size_of_1_hides_no_product(rng: np.random.Generator, rows: int) -> None:
    given, _ = call(rng, "float16", rows=rows)
    assert KERNEL.explain(*given, WRAP=False, BM=64, BN=64, BK=64).family == "product"
