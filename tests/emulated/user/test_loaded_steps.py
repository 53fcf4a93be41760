"""Pointers that move by loaded numbers: neighbours stay neighbours wherever a tile begins, so a piece is checked by its first column."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import louver

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: pip install 'louver[triton]'", allow_module_level=True)

import triton
import triton.language as tl

M, N, K, BK = 64, 64, 128, 32
CHECKS = 200
"""More than the comparisons of a kernel that checks pieces. One that checks each column has 290."""


@triton.jit
def by_loaded_steps(x, w, y, steps, of_x, COUNT, sxm, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """x times columns of w, whose pointers move by a list of distances."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + m[:, None] * sxm + k[None, :]
    w_at = w + n[:, None] * swn + k[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(COUNT):
        x_at += tl.load(of_x + step)
        w_at += tl.load(steps + step)
        total = tl.dot(tl.load(x_at), tl.load(w_at).T, total)
    tl.store(y + m[:, None] * BN + n[None, :], total)


@triton.jit
def by_a_walked_table(x, w, y, table, COUNT, sxm, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same, with a pointer that walks along a table of both distances, one step ahead."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + m[:, None] * sxm + tl.load(table) + k[None, :]
    w_at = w + n[:, None] * swn + tl.load(table + 1) + k[None, :]
    table += 2
    x_by, w_by = tl.load(table), tl.load(table + 1)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(COUNT, 0, -1):
        total += tl.dot(tl.load(x_at), tl.load(w_at).T)
        x_at += x_by
        w_at += w_by
        table += 2
        x_by, w_by = tl.load(table), tl.load(table + 1)
    tl.store(y + m[:, None] * BN + n[None, :], total)


def _given(rng: np.random.Generator, starts: list[int]) -> tuple[list[object], np.ndarray, np.ndarray]:
    x = rng.standard_normal((M, K)).astype(np.float16)
    w = louver.prune(rng.standard_normal((N, K)).astype(np.float16), "2:4")
    y, columns = np.full((M, N), np.nan, np.float32), np.add.outer(starts, np.arange(BK)).ravel()
    steps = np.diff(starts, prepend=0).astype(np.int32)
    wanted = x[:, columns].astype(np.float64) @ w[:, columns].astype(np.float64).T
    return [x, louver.compress(w, "2:4"), y, steps, steps.copy(), len(starts), K, K, M, N, BK], y, wanted


def test_groups_at_any_column(rng: np.random.Generator) -> None:
    given, y, wanted = _given(rng, [36, 96, 4, 64])
    kernel = louver.jit(by_loaded_steps)
    kernel.emulate[(1,)](*given)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-4)
    assert kernel.explain[(1,)](*given).ptx.count("setp.") < CHECKS


@pytest.mark.parametrize(
    "start", [2, 100, -4], ids=["inside of a group", "behind the last row", "before the first row"]
)
def test_a_wrong_column_is_reported(rng: np.random.Generator, start: int) -> None:
    given, y, _ = _given(rng, [32])
    given[3] = np.array([start], np.int32)
    with pytest.raises(louver.AddressError):
        louver.jit(by_loaded_steps).emulate[(1,)](*given)
    assert np.isnan(y[:, -1 if start > 0 else 0]).all()


def _walked(rng: np.random.Generator, starts: list[int]) -> tuple[list[object], np.ndarray, np.ndarray]:
    given, y, wanted = _given(rng, starts)
    table = np.array([*starts[:1], *np.diff(starts), 0, 0], np.int32).repeat(2)
    return [*given[:3], table, *given[5:]], y, wanted


def test_a_walked_table_is_read_ahead(rng: np.random.Generator) -> None:
    given, y, wanted = _walked(rng, [32, 96, 0, 64, 32])
    kernel = louver.jit(by_a_walked_table)
    kernel.emulate[(1,)](*given)
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-4)
    assert "cp.async" in kernel.explain[(1,)](*given).ptx
