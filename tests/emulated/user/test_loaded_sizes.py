"""Sizes that are loaded from memory: sparse tiles are boxes, and what a loaded K leaves out adds nothing, even if it is infinite."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

pytest.importorskip("triton")

import triton
import triton.language as tl

from support.triton.loaded import loaded

HELD, ROW, BM, BN = 64, 160, 16, 32


def _call(element: Any, m: int, n: int, k: int, *, turned: bool = False) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n + k)
    pattern = "1:2" if element == np.float32 else "2:4"
    x = rng.integers(-3, 4, (BM, ROW)).astype(element)
    w = louver.prune(rng.integers(-3, 4, (HELD, ROW)).astype(np.float32), pattern)
    wanted = np.full((BM, HELD), np.nan)
    wanted[:m, :n] = x[:m, :k].astype(np.float64) @ w[:n, :k].astype(np.float64).T
    beyond = np.where(rng.integers(2, size=w.shape) > 0, np.nan, np.inf)
    beyond[:n, :k] = w[:n, :k]
    w = np.where(w != 0, beyond, 0).astype(element)
    kept = louver.compress(np.ascontiguousarray(w.T) if turned else w, pattern, axis=-2 if turned else -1)
    y, sizes = np.full((BM, HELD), np.nan, np.float32), np.array([m, n, k], np.int32)
    strides = {"stride_w": 1, "stride_wk": HELD} if turned else {"stride_w": ROW, "stride_wk": 1}
    given = {"x": x, "w": kept, "y": y, "sizes": sizes, "stride_x": ROW, "stride_y": HELD, "BM": BM, "BN": BN}
    return given | strides, wanted


@pytest.mark.parametrize("once", [False, True], ids=["tested before", "tested after"])
@pytest.mark.parametrize("element", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float32])
def test_a_loaded_k_may_end_anywhere(element: Any, once: bool) -> None:
    """Beyond it w is NaN or infinite."""
    kernel = louver.jit(loaded)
    for rest, m, n, k in (
        (False, 13, 40, 160),
        (True, 16, 64, 131),
        (True, 9, 50, 64),
        (False, 16, 33, 2),
        (False, 7, 64, 0),
    ):
        given, wanted = _call(element, m, n, k)
        given |= {"ONCE": once, "REST": rest, "ROWS": True, "BK": 64}
        assert "computed addresses" not in str(kernel.explain(**given))
        kernel.emulate[1, 2](**given)
        np.testing.assert_allclose(given["y"], wanted, rtol=1e-6)


def test_rows_without_a_mask_are_boxes_too() -> None:
    given, wanted = _call(np.float16, 16, 64, 90)
    louver.jit(loaded).emulate[1, 2](**given, ONCE=False, REST=False, ROWS=False, BK=64)
    np.testing.assert_allclose(given["y"], wanted, rtol=1e-6)


def test_columns_of_a_transposed_tensor_are_computed() -> None:
    given, wanted = _call(np.float16, 16, 64, 144, turned=True)
    given |= {"ONCE": False, "REST": False, "ROWS": True, "BK": 64}
    kernel = louver.jit(loaded)
    assert "w is read at computed addresses" in str(kernel.explain(**given))
    kernel.emulate[1, 2](**given)
    np.testing.assert_allclose(given["y"], wanted, rtol=1e-6)


@triton.jit
def halves_of_adapters(x, w, y, adapters, ranks, N, K, we, wn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows of x times one half of a loaded matrix of w [matrices, 2 * N, K], of which a loaded number of columns counts."""
    half, adapter = tl.program_id(1), tl.load(adapters + tl.program_id(0))
    rank = tl.minimum(K, tl.load(ranks + adapter))
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(2) * BN + tl.arange(0, BN), tl.arange(0, BK)
    x_at = x + m[:, None] * K + k[None, :]
    w_at = w + adapter * we + half * N * wn + n[None, :] * wn + k[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(rank, BK)):
        a = tl.load(x_at, mask=k[None, :] < rank - step * BK, other=0.0)
        b = tl.load(w_at, mask=(k[:, None] < rank - step * BK) & (n[None, :] < N), other=0.0)
        total += tl.dot(a, b)
        x_at += BK
        w_at += BK
    tl.store(y + m[:, None] * (2 * N) + half * N + n[None, :], total, mask=(n < N)[None, :])


@pytest.mark.parametrize(("rows", "computed"), [(48, False), (40, True)])
def test_halves_of_loaded_matrices(rng: np.random.Generator, rows: int, computed: bool) -> None:
    """Both numbers select a part of a batch. A half of other rows than a multiple of 16 shares metadata with the next one."""
    held, k = 3, 64
    adapters, ranks = np.array([2, 0, 1, 2], np.int32), np.array([64, 19, 40], np.int32)
    x = rng.integers(-3, 4, (len(adapters) * BM, k)).astype(np.float16)
    w = louver.prune(rng.integers(-3, 4, (held, 2 * rows, k)).astype(np.float16), "2:4")
    wanted = np.concatenate(
        [
            x[place * BM :][:BM, : ranks[at]].astype(np.float64) @ w[at, :, : ranks[at]].astype(np.float64).T
            for place, at in enumerate(adapters)
        ]
    )
    y = np.full(wanted.shape, np.nan, np.float32)
    kernel, grid = louver.jit(halves_of_adapters), (len(adapters), 2, 2)
    given = x, louver.compress(w, "2:4"), y, adapters, ranks, rows, k, 2 * rows * k, k, BM, BN, 16
    kernel.emulate[grid](*given)
    np.testing.assert_array_equal(y, wanted)
    assert ("computed addresses" in str(kernel.explain[grid](*given))) is computed
