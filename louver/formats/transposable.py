"""Transposable 2:4 masks: two of four elements are kept in each row and in each column of a block of 4 × 4.

The score of a mask is the sum of the magnitudes that it keeps, in f32: rows first, then (row 0 + row 1) + (row 2 + row 3). A
magnitude is |w| / 256; infinities and NaNs count as 2^124, more than eight finite elements of any type.

There are 90 such masks. The upper two rows use the columns in one of 19 ways (`WAYS`), and the lower two use what is left.
The mask is made of the best upper half and the best lower half of one way; of equal halves the first. The way is the one with
the largest score, of equal ones the first. Rounding is monotonic, so no mask has a larger score.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.pattern import Pattern
from louver.formats.rows import Bits
from louver.formats.select import Mask

PATTERN: Final = Pattern(2, 4)
"""The only pattern that has transposable masks here."""

SIDE: Final = PATTERN.m
"""Rows and columns of a block."""

PAIRS: Final = tuple(combinations(range(SIDE), PATTERN.n))
"""The columns that a row of a block may keep."""

Half = tuple[int, int]
"""The pairs, by their numbers, that two neighbouring rows keep."""

SCALE: Final = 2.0**-8
INFINITE: Final = 2.0**124


def _used(half: Half) -> tuple[int, ...]:
    """How often each column is kept in two rows."""
    kept = [*PAIRS[half[0]], *PAIRS[half[1]]]
    return tuple(kept.count(column) for column in range(SIDE))


def _ways() -> tuple[tuple[tuple[Half, ...], tuple[Half, ...]], ...]:
    halves: dict[tuple[int, ...], list[Half]] = {}
    for half in product(range(len(PAIRS)), repeat=2):
        halves.setdefault(_used(half), []).append(half)
    left = {used: tuple(PATTERN.n - count for count in used) for used in halves}
    return tuple((tuple(upper), tuple(halves[left[used]])) for used, upper in halves.items())


WAYS: Final = _ways()
"""For each way, in the order of its first upper half: the upper halves that use the columns so, and the lower halves that fit."""


def score(blocks: Bits, element: ElementType) -> NDArray[np.float32]:
    """What an element adds to a mask's score: float32 of the raw bits' shape."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(blocks.view(element.numpy).astype(np.float32)) * np.float32(SCALE)
    return np.fmin(size, np.float32(INFINITE))


def transposable(blocks: Bits, element: ElementType) -> Mask:
    """The mask of each block. blocks: raw bits [4, 4, count], rows first; the mask has their shape."""
    sizes = score(blocks, element)
    sums = [[row[i] + row[j] for i, j in PAIRS] for row in sizes]
    best: tuple[NDArray[Any], ...] | None = None
    for uppers, lowers in WAYS:
        upper, kept_above = _best(uppers, sums[0], sums[1])
        lower, kept_below = _best(lowers, sums[2], sums[3])
        found = upper + lower, kept_above, kept_below
        if best is None:
            best = found
        else:
            larger = found[0] > best[0]
            best = tuple(np.where(larger, new, old) for new, old in zip(found, best, strict=True))
    assert best is not None
    kept = best[1].astype(np.uint16) | best[2].astype(np.uint16) << 2 * SIDE
    places = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE, 1)
    return (kept >> places & 1).astype(np.bool_)


def half_mask(half: Half) -> int:
    """The elements that two rows keep, a bit each: column + 4 · row."""
    return sum(1 << SIDE * row + column for row, pair in enumerate(half) for column in PAIRS[pair])


def _best(
    halves: tuple[Half, ...], first: list[NDArray[np.float32]], second: list[NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """The largest sum of the halves, and its mask."""
    sums = [first[p] + second[q] for p, q in halves]
    masks = [np.uint8(half_mask(half)) for half in halves]
    largest, kept = sums[0], np.full(sums[0].shape, masks[0])
    for total, mask in zip(sums[1:], masks[1:], strict=True):
        larger = total > largest
        largest, kept = np.where(larger, total, largest), np.where(larger, mask, kept)
    return largest, kept
