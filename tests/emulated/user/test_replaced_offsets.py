"""Offsets that `tl.where` replaces outside of a sparse tensor: they run where what is replaced reaches no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton.replaced import replaced, replaced_inside

M, BM, BN, BK = 17, 16, 32, 64


def _call(n: int, k: int, *, first: bool) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((M, k), np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k), np.float32).astype(np.float16), "2:4")
    y = np.full((M, n), np.nan, np.float32)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "M": M, "N": n, "K": k}
    return given | {"FIRST": first, "BM": BM, "BN": BN, "BK": BK}, x.astype(np.float64) @ w.astype(np.float64).T


@pytest.mark.parametrize(
    ("n", "k", "first"),
    [
        *((64, k, False) for k in (136, 68, 144, 128)),
        *((64, k, True) for k in (128, 136)),
        *((56, 128, first) for first in (False, True)),
    ],
)
def test_what_is_replaced_reaches_no_result(n: int, k: int, first: bool) -> None:
    given, expected = _call(n, k, first=first)
    louver.jit(replaced).emulate[2, 2](**given)
    np.testing.assert_allclose(given["y"], expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("sum", [False, True])
@pytest.mark.parametrize("k", [128, 136])
def test_whole_parts_are_replaced_where_no_mask_stands_for_them(k: int, *, sum: bool) -> None:
    given, expected = _call(64, k, first=False)
    del given["FIRST"]
    louver.jit(replaced_inside).emulate[2, 2](**given, START=0, SUM=sum)
    np.testing.assert_allclose(given["y"], expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("sum", [False, True])
def test_rows_that_are_replaced_in_part_are_refused(*, sum: bool) -> None:
    given, _ = _call(56, 128, first=False)
    del given["FIRST"]
    with pytest.raises(ValueError, match="takes N in multiples of 32, got 56"):
        louver.jit(replaced_inside).emulate[2, 2](**given, START=0, SUM=sum)
    assert np.isnan(given["y"]).all()
