"""Transposable masks against all 90 masks of a block, one by one."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import louver
from louver.formats.dtypes import element_type
from louver.formats.select import INFINITE, PAIRS, SCALE, best, number
from support.sparse import SPARSE_TYPES, bits_of, random_bits, same_bits

MASKS = [
    mask
    for rows in product(PAIRS, repeat=4)
    if (mask := np.array([[column in row for column in range(4)] for row in rows])).sum(axis=0).tolist() == [2] * 4
]


def exact(w: Any) -> np.ndarray:
    """The summands of a score, one for each element, without rounding sums."""
    with np.errstate(invalid="ignore"):
        size = np.abs(w.astype(np.float32)).astype(np.float64) * SCALE
    return np.where(np.isfinite(size), size, INFINITE)


def blocks(w: Any) -> np.ndarray:
    """[blocks, 4, 4], filled up with zeros."""
    rows, columns = w.shape
    whole = np.pad(w, ((0, -rows % 4), (0, -columns % 4)))
    return whole.reshape(whole.shape[0] // 4, 4, -1, 4).swapaxes(1, 2).reshape(-1, 4, 4)


def test_every_mask_is_looked_at_and_nothing_else() -> None:
    # Sets of masks instead of numbers: all choices stay.
    found = best(
        [[{number(row, column)} for column in range(4)] for row in range(4)],
        lambda a, b: {one | other for one in a for other in b},
        lambda a, b: a | b,
    )
    places = 1 << np.arange(16).reshape(4, 4)
    assert len(MASKS) == 90 and found == {int((mask * places).sum()) for mask in MASKS}


@pytest.mark.parametrize("dtype", SPARSE_TYPES)
def test_no_mask_keeps_more(dtype: str, rng: np.random.Generator) -> None:
    w = random_bits(rng, (26, 45), dtype)
    pruned = louver.prune(w, "2:4", transposable=True)
    for axis in (0, 1):
        assert louver.check(pruned, "2:4", axis=axis)
    kept = np.where(bits_of(pruned) != 0, exact(w), 0)
    assert ((bits_of(pruned) == bits_of(w)) | (bits_of(pruned) == 0)).all()
    best = np.max([(blocks(exact(w)) * mask).sum(axis=(1, 2)) for mask in MASKS], axis=0)
    # Sums of integers are exact; those of floats are rounded to f32.
    slack = 0 if element_type(dtype).bits == 8 and not element_type(dtype).floating else 2.0**-21
    assert (blocks(kept).sum(axis=(1, 2)) >= best * (1 - slack)).all()


def test_infinities_come_first(rng: np.random.Generator) -> None:
    w = rng.standard_normal((4, 4)).astype(np.float32) * np.float32(3e38 / 5)
    w[0, 1], w[2, 1], w[2, 3], w[3, 0] = np.inf, np.nan, -np.inf, np.nan
    pruned = louver.prune(w, "2:4", transposable=True)
    assert not np.isfinite(pruned[[0, 2, 2, 3], [1, 1, 3, 0]]).any()


def test_the_first_of_equal_scores() -> None:
    ones = louver.prune(np.ones((4, 4), np.float16), "2:4", transposable=True)
    assert ones.tolist() == [[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1]]


@pytest.mark.parametrize("shape", [(3, 9, 14), (2, 1, 5, 4), (0, 8), (8, 0), (2, 0, 4)])
def test_batches_and_cut_off_blocks(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    w = random_bits(rng, shape, "bf16")
    pruned = louver.prune(w, "2:4", axis=-2, transposable=True)
    assert same_bits(pruned, louver.prune(w, "2:4", transposable=True))
    for entry in np.ndindex(*shape[:-2]):
        assert same_bits(pruned[entry], louver.prune(w[entry], "2:4", transposable=True))


def test_strips_are_cut_into_blocks_of_work(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    w = random_bits(rng, (33, 18), "f16")
    whole = louver.prune(w, "2:4", transposable=True)
    monkeypatch.setattr("louver.formats.rows.BLOCK", 150)
    assert same_bits(louver.prune(w, "2:4", transposable=True), whole)


def test_both_orientations(rng: np.random.Generator) -> None:
    w = random_bits(rng, (2, 12, 20), "f16")
    along, across = louver.compress_both(w)
    pruned = louver.prune(w, "2:4", transposable=True)
    assert (along.axis, across.axis) == (2, 1)
    assert same_bits(along.dense(), pruned) and same_bits(across.dense(), pruned)
    assert along.negative_zeros_dropped == across.negative_zeros_dropped == 0


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((8, 8), {"pattern": "1:2"}, "transposable masks are 2:4, got 1:2"),
        ((8,), {}, "of the last two axes, got 1 dimensions and axis 0"),
        ((4, 8, 8), {"axis": 0}, "of the last two axes, got 3 dimensions and axis 0"),
    ],
)
def test_what_has_no_transposable_mask(shape: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        louver.prune(np.ones(shape, np.float16), **({"pattern": "2:4", "transposable": True} | options))
