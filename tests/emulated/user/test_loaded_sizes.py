"""Sizes that are loaded from memory: sparse tiles are boxes, and what a loaded K leaves out adds nothing, even if it is infinite."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver

pytest.importorskip("triton")

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
