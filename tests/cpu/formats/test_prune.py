from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import louver
from support.sparse import SPARSE_TYPES, bits_of, random_bits, same_bits, slow_prune

PATTERNS = [(2, 4), (1, 2), (6, 8), (1, 16), (3, 5)]
PLACES = [((5, 16), -1), ((7, 13), 1), ((13, 6), 0), ((3, 9, 5), 1), ((2, 3, 2, 11), -1), ((10,), 0), ((3, 1), 1)]


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
@pytest.mark.parametrize(("n", "m"), PATTERNS)
def test_the_largest_stay_bit_for_bit(dtype: str, n: int, m: int, rng: np.random.Generator) -> None:
    for shape, axis in PLACES:
        w = random_bits(rng, shape, dtype)
        before = w.copy()
        assert same_bits(louver.prune(w, f"{n}:{m}", axis=axis), slow_prune(w, n, m, axis))
        assert same_bits(w, before)


def test_many_blocks(rng: np.random.Generator) -> None:
    w = rng.standard_normal((1200, 515), np.float32).astype(np.float16)
    pruned = louver.prune(w, "2:4")
    padded = np.pad(np.abs(w.astype(np.float32)), ((0, 0), (0, 1))).reshape(1200, 129, 4)
    # No two magnitudes of a group may be equal for this test's oracle.
    distinct = (np.diff(np.sort(padded, axis=2), axis=2) > 0).all(axis=2)
    third = np.sort(padded, axis=2)[:, :, 1]
    expected = np.where((padded > third[:, :, None]), padded, 0)
    got = np.pad(np.abs(pruned.astype(np.float32)), ((0, 0), (0, 1))).reshape(1200, 129, 4)
    assert distinct.mean() > 0.9
    assert np.array_equal(got[distinct], expected[distinct])


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        ([1, -1, 1, -1], [1, -1, 0, 0]),
        ([0.5, 2, -2, 2], [0, 2, -2, 0]),
        ([np.nan, 3, -np.inf, 65504], [np.nan, 0, -np.inf, 0]),
        ([7, np.inf, np.nan, np.inf], [0, np.inf, np.nan, 0]),
        ([0, 0, 0, 6e-8], [0, 0, 0, 6e-8]),
    ],
)
def test_ties_and_what_is_not_finite(group: list[float], kept: list[float]) -> None:
    assert same_bits(louver.prune(np.array(group, np.float16), "2:4"), np.array(kept, np.float16))


def test_the_most_negative_integer_is_the_largest() -> None:
    assert louver.prune(np.array([127, -128, -127, 126], np.int8), "1:4").tolist() == [0, -128, 0, 0]
    assert louver.prune(np.array([127, 128, 255, 1], np.uint8), "2:4").tolist() == [0, 128, 255, 0]


def test_pruned_slots_are_positive_zero() -> None:
    w = np.array([-1, -2, -3, -4], ml_dtypes.bfloat16)
    assert bits_of(louver.prune(w, "2:4"))[:2].tolist() == [0, 0]


def test_views_and_lists_of_rows(rng: np.random.Generator) -> None:
    w = random_bits(rng, (24, 40), "bf16")
    assert same_bits(louver.prune(w[::3, 5:31:2], "2:4"), slow_prune(w[::3, 5:31:2].copy(), 2, 4, 1))
    assert same_bits(louver.prune(w.T, "2:4"), slow_prune(w.T.copy(), 2, 4, 1))
    assert louver.prune(w.T, "2:4").flags.c_contiguous


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0,)])
def test_nothing_to_prune(shape: tuple[int, ...]) -> None:
    assert louver.prune(np.zeros(shape, np.float16), "2:4").shape == shape


@pytest.mark.parametrize(
    ("w", "options", "message"),
    [
        (np.float16(1), {}, "at least one dimension, got a scalar"),
        (np.ones(4), {}, "an element type is one of .* got dtype\\('float64'\\)"),
        (np.ones(4, np.int32), {}, "an element type is one of f16, .*, u4x2 .* got dtype.'int32'"),
        (np.ones((4, 4), np.float16), {"axis": 2}, "from -2 to 1, got 2"),
        (np.ones((4, 4), np.float16), {"axis": -3}, "from -2 to 1, got -3"),
        (np.ones((4, 4), np.float16), {"method": "wanda"}, "has the method \"magnitude\", got 'wanda'"),
        (np.ones((4, 4), np.float16), {"norm": "max"}, 'by the norm "l1" or "l2", got \'max\''),
        (np.ones((4, 4), np.float16), {"norm": 2}, "got an object of type int"),
    ],
)
def test_what_cannot_be_pruned(w: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        louver.prune(w, **({"pattern": "2:4"} | options))
