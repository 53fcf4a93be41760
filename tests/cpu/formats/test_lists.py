"""Lists of rows of K, for rows of windows together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import louver
from louver.formats.lists import LIST_COLUMNS, gathered, gathered_rows
from louver.formats.pattern import Pattern
from support.gathered import vectors


def multiplied(made, b: np.ndarray) -> np.ndarray:
    """As a product does it: for each list its rows of b, zeros in places without one."""
    padded = np.concatenate([b, np.zeros((1, b.shape[1]))])
    parts = []
    for number, entries in enumerate(made.lists):
        rows = made.values[number * made.list_rows : (number + 1) * made.list_rows]
        parts.append(rows.astype(np.float64) @ padded[entries[: made.kept]])
    return np.concatenate(parts)


@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64", "1:16@7", "3:5@33", "3:4", "2:8@400", "255:256@96"])
@pytest.mark.parametrize("list_rows", [64, 128, 192])
def test_lists_give_the_product(rng: np.random.Generator, pattern: str, list_rows: int) -> None:
    given, b = vectors(rng, 200, 301, pattern), rng.integers(-4, 5, (301, 5)).astype(np.float64)
    made = gathered_rows(given.values, given.windows, given.pattern.length, 301, list_rows)
    assert made.lists.shape[1] % LIST_COLUMNS == 0 and made.lists.dtype == np.int32
    np.testing.assert_array_equal(multiplied(made, b), given.a.astype(np.float64) @ b)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_lists_of_any_tensor_give_its_product(data: st.DataObject) -> None:
    batch, m, k = (data.draw(st.integers(1, most), label=name) for name, most in (("batch", 3), ("M", 90), ("K", 60)))
    group = data.draw(st.integers(1, 20), label="group")
    pattern = Pattern(data.draw(st.integers(1, group), label="N"), group, data.draw(st.integers(1, 100), label="L"))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    w = louver.prune(rng.integers(-4, 5, (batch, m, k)).astype(np.float16), pattern)
    b = rng.integers(-4, 5, (k, 3)).astype(np.float64)
    made = gathered(louver.compress(w, pattern), data.draw(st.sampled_from((64, 192)), label="rows of a list"))
    lists = made.lists.reshape(batch, -1, made.lists.shape[1])
    for number, values in enumerate(np.split(made.values, batch)):
        entry = replace(made, values=values, lists=lists[number])
        np.testing.assert_array_equal(multiplied(entry, b), w[number].astype(np.float64) @ b)


def test_a_window_s_own_list_keeps_values_and_order(rng: np.random.Generator) -> None:
    given = vectors(rng, 256, 256, "2:8@128")
    made = gathered_rows(given.values, given.windows, 128, 256, 64)
    assert made.values is given.values and made.kept == 64
    np.testing.assert_array_equal(made.lists[:, :64], np.repeat(given.windows, 2, axis=0))
    assert (made.lists[:, 64:] == 256).all()


def test_a_union_is_sorted_and_no_longer_than_k(rng: np.random.Generator) -> None:
    given = vectors(rng, 128, 64, "3:4")
    made = gathered_rows(given.values, given.windows, 1, 64, 128)
    np.testing.assert_array_equal(made.lists[0, : made.kept], np.arange(64))


def test_what_is_no_window_is_refused() -> None:
    values = np.zeros((8, 4), np.float16)
    with pytest.raises(ValueError, match=r"8 rows in windows of 4 have rows of K of shape \[2, 4\], got \[1, 4\]"):
        gathered_rows(values, np.zeros((1, 4), np.int64), 4, 16, 64)
    for rows in ([0, 1, 2, 2], [-1, 0, 1, 2]):
        with pytest.raises(ValueError, match="a window names rows from 0 on, each once"):
            gathered_rows(values, np.array([[0, 1, 2, 3], rows]), 4, 16, 64)
