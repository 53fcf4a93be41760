"""Offsets that `tl.where` replaces outside of a sparse tensor: they run where what is replaced reaches no result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import louver

pytest.importorskip("triton")

from support.triton.replaced import in_turn, limited, replaced, replaced_everywhere, replaced_inside

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


@pytest.mark.parametrize(("n", "k"), [(64, 136), (56, 144), (72, 128)])
def test_a_choice_behind_the_other_load_makes_zeros(n: int, k: int) -> None:
    given, expected = _call(n, k, first=False)
    del given["FIRST"]
    kernel, grid = louver.jit(replaced_everywhere), (2, -(-n // BN))
    assert "computed" not in str(kernel.explain[grid](**given))
    kernel.emulate[grid](**given)
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


@pytest.mark.parametrize("out", [False, True], ids=["whole", "halved"])
@pytest.mark.parametrize("how", ["wrap", "minimum", "where"])
def test_columns_that_are_limited_beside_zeros_are_boxes(how: str, out: bool) -> None:
    """Behind a mask of the sums, the rows too are a box; behind a split those that begin again, if N is whole tiles."""
    for n, k in ((64, 136), (56, 144), (64, 80)):
        given, expected = _call(n, k, first=False)
        del given["FIRST"]
        kernel = louver.jit(limited)
        told = str(kernel.explain[2, 2](**given, HOW=how, OUT=out))
        assert ("w is read at computed addresses" in told) == (out and (how != "wrap" or n % BN > 0))
        if "computed" in told and k % 16:
            continue
        kernel.emulate[2, 2](**given, HOW=how, OUT=out)
        if out:
            expected = np.pad(expected.reshape(M, -1, 2).sum(2), ((0, 0), (0, n // 2)), constant_values=np.nan)
        np.testing.assert_allclose(given["y"], expected, rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize(("n", "k"), [(32, 64), (48, 64), (32, 80), (96, 96)])
def test_rows_and_columns_in_turn(n: int, k: int) -> None:
    """Boxes where N and K are whole tiles; else the call computes addresses."""
    given, _ = _call(n, k, first=False)
    del given["FIRST"]
    rng, length = np.random.default_rng(n * k), 3 * BK
    x, w = rng.integers(-3, 4, (M, length)).astype(np.float16), rng.integers(-3, 4, (n, k)).astype(np.float16)
    w = louver.prune(w, "2:4")
    given |= {"x": x, "w": louver.compress(w, "2:4"), "y": np.full((M, 2 * BN), np.nan, np.float32), "LENGTH": length}
    louver.jit(in_turn).emulate[2, 2](**given)
    every = w[np.arange(2 * BN) % n][:, np.arange(length) % k]
    np.testing.assert_array_equal(given["y"], x.astype(np.float64) @ every.astype(np.float64).T)
