"""Pointers that move by loaded numbers: neighbours stay neighbours wherever a tile begins, so a piece is checked by its first column."""

from __future__ import annotations

import importlib.util

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

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
def by_a_walked_table(x, w, y, table, COUNT, ROWS, sxm, swn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same, with a pointer that walks along a table of both distances, one step ahead."""
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + m[:, None] * sxm + tl.load(table) + k[None, :]
    w_at = w + n[:, None] * swn + tl.load(table + 1) + k[None, :]
    table += 2
    x_by, w_by = tl.load(table), tl.load(table + 1)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(COUNT, 0, -1):
        total += tl.dot(tl.load(x_at, mask=m[:, None] < ROWS, other=0.0), tl.load(w_at).T)
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


class _Walk:
    """A call of `by_a_walked_table`. x_starts, w_starts: the first column of each step."""

    def __init__(
        self,
        rng: np.random.Generator,
        x_starts: list[int],
        w_starts: list[int],
        *,
        by: int,
        dtype: DTypeLike,
        rows: int,
    ) -> None:
        steps, starts = len(x_starts), np.array([x_starts, w_starts])
        x, w = (rng.standard_normal((size, 96 + by)).astype(dtype) for size in (M, N))
        w = louver.prune(w, "2:4")
        table = np.hstack([starts[:, :1], np.diff(starts), np.full((2, 2), 2)]).T.astype(np.int32).ravel()
        self.y = np.full((M, N), np.nan, np.float32)
        self.given = [x, louver.compress(w, "2:4"), self.y, table, steps, rows, x.shape[1], w.shape[1], M, N, by]
        one, other = (
            np.hstack([each[:, at : at + by] for at in of]).astype(np.float64)
            for each, of in zip((x, w), starts, strict=True)
        )
        self.wanted = np.where(np.arange(M)[:, None] < rows, one @ other.T, 0)


@pytest.mark.parametrize(
    ("dtype", "by"),
    [
        (np.float16, 32),
        (ml_dtypes.float8_e4m3fn, 64),
    ],
    ids=["f16", "e4m3"],
)
@pytest.mark.parametrize("rows", [M, 50], ids=["all rows", "masked rows"])
@pytest.mark.parametrize(
    ("x_starts", "w_starts"),
    [
        ([32, 96, 0, 64, 32], [0, 64, 32, 96, 48]),
        ([33, 94, 2, 61, 7], [4, 92, 36, 60, 12]),
        ([32, 95, 0, 64, 7], [4, 64, 32, 92, 48]),
    ],
    ids=["at pieces", "between pieces", "at both"],
)
def test_walked_tables_are_read_ahead_in_pieces(
    rng: np.random.Generator, x_starts: list[int], w_starts: list[int], rows: int, dtype: DTypeLike, by: int
) -> None:
    walk = _Walk(rng, x_starts, w_starts, by=by, dtype=dtype, rows=rows)
    kernel = louver.jit(by_a_walked_table)
    kernel.emulate[(1,)](*walk.given)
    np.testing.assert_allclose(walk.y, walk.wanted, rtol=0, atol=1e-3)
    ptx = kernel.explain[(1,)](*walk.given).ptx
    assert ptx.count("cp.async.cg") > 1
    # The first step is reported before the loop, where its codes are loaded. Nothing behind the last one is.
    assert ptx.count("red.global.or") == 2


@pytest.mark.parametrize("step", range(3))
def test_a_wrong_step_of_a_walked_table_is_reported(rng: np.random.Generator, step: int) -> None:
    starts = [32, 64, 0]
    starts[step] += 2
    walk = _Walk(rng, [0, 32, 64], starts, by=32, dtype=np.float16, rows=M)
    with pytest.raises(louver.AddressError):
        louver.jit(by_a_walked_table).emulate[(1,)](*walk.given)
    assert np.isnan(walk.y).all()
