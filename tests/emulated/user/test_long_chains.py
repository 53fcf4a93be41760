"""Chains of operations that use their operand twice: the paths to the first double with each, and the compiler must not follow all."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver
from support.work import cpu_seconds

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

ROWS, COLUMNS, DEPTH, TIMES = 16, 64, 64, 30


@triton.jit
def chained(
    x, w, y, sign, WHERE: tl.constexpr, TIMES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):  # fmt: skip
    """`twice(v)` is v, where `sign` is -1."""
    m, n, k = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    if WHERE == "rows":
        for _ in tl.static_range(TIMES):
            m = m * 2 + m * sign
    left = tl.load(x + m[:, None] * DEPTH + k[None, :])
    right = tl.load(w + n[:, None] * DEPTH + k[None, :])
    if WHERE == "dense":
        for _ in tl.static_range(TIMES):
            left = left * 0.5 + left * 0.5
    if WHERE == "sparse":
        for _ in tl.static_range(TIMES):
            right = right * 0.5 + right * 0.5
    total = tl.dot(left, right.T)
    if WHERE == "sums":
        for _ in tl.static_range(TIMES):
            total = total * 0.5 + total * 0.5
    tl.store(y + tl.arange(0, ROWS)[:, None] * COLUMNS + n[None, :], total)


@pytest.mark.parametrize("where", ["rows", "dense", "sparse", "sums"])
def test_what_is_used_twice_is_read_once(rng: np.random.Generator, where: str) -> None:
    x = rng.standard_normal((ROWS, DEPTH)).astype(np.float16)
    w = louver.prune(rng.standard_normal((COLUMNS, DEPTH)).astype(np.float16), "2:4")
    y = np.zeros((ROWS, COLUMNS), np.float32)
    with cpu_seconds(60):
        louver.jit(chained).emulate[(1,)](x, louver.compress(w, "2:4"), y, -1, where, TIMES, ROWS, COLUMNS, DEPTH)
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)


@triton.jit
def placed(
    x, w, y, q, HOW: tl.constexpr, TIMES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr
):
    """Tiles at a number that stays 0 in each step."""
    m, n, k = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, DEPTH)
    for i in tl.static_range(TIMES):
        if HOW == "quotients":
            q = q // 3 + q % 7
        if HOW == "choices":
            q = tl.where(q > i, q * q, q + q)
        if HOW == "minima":
            q = tl.minimum(q * 2, q + i)
    left = tl.load(x + (q * ROWS + m)[:, None] * DEPTH + k[None, :])
    right = tl.load(w + (q * COLUMNS + n)[:, None] * DEPTH + k[None, :])
    tl.store(y + m[:, None] * COLUMNS + n[None, :], tl.dot(left, right.T))


@pytest.mark.parametrize("how", ["quotients", "choices", "minima"])
def test_numbers_of_places_are_read_once(rng: np.random.Generator, how: str) -> None:
    x = rng.standard_normal((ROWS, DEPTH)).astype(np.float16)
    w = louver.prune(rng.standard_normal((COLUMNS, DEPTH)).astype(np.float16), "2:4")
    y = np.zeros((ROWS, COLUMNS), np.float32)
    with cpu_seconds(60):
        louver.jit(placed).emulate[(1,)](x, louver.compress(w, "2:4"), y, 0, how, TIMES, ROWS, COLUMNS, DEPTH)
    expected = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3)
