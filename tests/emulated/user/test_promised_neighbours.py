"""Columns that wrap (`% N`), whose sign only the user's promise of neighbours tells, are stored and added many at once."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

import louver

M, N, K, SPLITS = 128, 160, 256, 2


@triton.jit
def wrapped_sums(
    x, w, y, M, N, K, stride_y, PROMISED: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ADD: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = tl.swizzle2d(tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), 2)
    m, n = (tile_m * BM + tl.arange(0, BM)) % M, (tile_n * BN + tl.arange(0, BN)) % N
    if PROMISED:
        m, n = tl.max_contiguous(tl.multiple_of(m, BM), BM), tl.max_contiguous(tl.multiple_of(n, BN), BN)
    k = tl.program_id(2) * BK + tl.arange(0, BK)
    x_at, w_at = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BK * SPLITS)):
        total += tl.dot(tl.load(x_at), tl.load(w_at))
        x_at += BK * SPLITS
        w_at += BK * SPLITS
    at, total = y + m[:, None] * stride_y + n[None, :], total.to(y.dtype.element_ty)
    if ADD:
        tl.atomic_add(at, total, sem="relaxed")
    else:
        tl.store(at, total, mask=(m < M)[:, None] & (n < N)[None, :])


def _call(t: type, add: bool, promised: bool, columns: int) -> tuple[dict[str, object], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(columns + add)
    x, w = (rng.standard_normal((rows, K)).astype(np.float16) for rows in (M, columns))
    w, y = louver.prune(w, "2:4"), np.zeros((M, columns), t)
    sizes = {
        "M": M,
        "N": columns,
        "K": K,
        "stride_y": columns,
        "SPLITS": SPLITS if add else 1,
        "BM": 64,
        "BN": 32,
        "BK": 64,
    }
    call = {"x": x, "w": louver.compress(w, "2:4"), "y": y, **sizes, "PROMISED": promised, "ADD": add}
    return call, y, x.astype(np.float64) @ w.astype(np.float64).T


@pytest.mark.parametrize(
    ("t", "add", "wide"),
    [
        (np.float16, True, "red.global.add.noftz.v4.f16x2"),
        (np.float32, True, "red.global.add.v4.f32"),
        (np.float16, False, "st.global.v4.b32"),
    ],
)
def test_neighbours_that_wrap_move_together(t: type, add: bool, wide: str) -> None:
    """One access an element, as without a promise, made a split-K kernel three times slower than a dense one on an H200."""
    call, y, wanted = _call(t, add, True, N)
    kernel, grid = louver.jit(wrapped_sums), (M // 64, N // 32, SPLITS if add else 1)
    ptx = kernel.explain[grid](**call).ptx
    narrow = [line for line in ptx.splitlines() if (" red.global" in line or " st.global" in line) and wide not in line]
    assert wide in ptx and not narrow
    kernel.emulate[grid](**call)
    np.testing.assert_allclose(y, wanted, rtol=4e-3, atol=4e-2)


@pytest.mark.parametrize(("promised", "columns"), [(False, N), (True, 152), (True, 100)])
def test_neighbours_that_may_wrap_apart(promised: bool, columns: int) -> None:
    """A promise does not say that a tile ends at the last column: one whose columns wrap within it is added element by element."""
    call, y, wanted = _call(np.float32, True, promised, columns)
    kernel, grid = louver.jit(wrapped_sums), (M // 64, columns // 32, SPLITS)
    kernel.emulate[grid](**call)
    whole = columns // 32 * 32
    np.testing.assert_allclose(y[:, :whole], wanted[:, :whole], rtol=1e-3, atol=1e-3)
