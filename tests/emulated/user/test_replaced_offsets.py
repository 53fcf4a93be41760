"""Offsets that `tl.where` replaces outside of a sparse tensor: they run where the rest is zero, or the call is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton.replaced import replaced

M, BM, BN, BK = 17, 16, 32, 64


def _call(n: int, k: int, *, first: bool) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n + k)
    x = rng.standard_normal((M, k), np.float32).astype(np.float16)
    w = louver.prune(rng.standard_normal((n, k), np.float32).astype(np.float16), "2:4")
    y = np.full((M, n), np.nan, np.float32)
    given = {"x": x, "w": louver.compress(w, "2:4"), "y": y, "M": M, "N": n, "K": k}
    return given | {"FIRST": first, "BM": BM, "BN": BN, "BK": BK}, x.astype(np.float64) @ w.astype(np.float64).T


@pytest.mark.parametrize(("k", "first"), [(136, False), (68, False), (144, False), (128, False), (128, True)])
def test_columns_are_replaced_in_whole_groups_where_the_other_operand_is_zero(k: int, first: bool) -> None:
    given, expected = _call(64, k, first=first)
    louver.jit(replaced).emulate[2, 2](**given)
    np.testing.assert_allclose(given["y"], expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("n", "k", "first", "rule"),
    [(56, 128, False, "takes N in multiples of 32, got 56"), (64, 136, True, "takes K in multiples of 64, got 136")],
)
def test_rows_and_columns_that_count_are_refused_at_the_call(n: int, k: int, first: bool, rule: str) -> None:
    given, _ = _call(n, k, first=first)
    with pytest.raises(ValueError, match=rule):
        louver.jit(replaced).emulate[2, 2](**given)
    assert np.isnan(given["y"]).all()
