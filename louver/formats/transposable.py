"""Transposable 2:4 masks: each row and each column of a 4 × 4 block keeps two of its four elements.

The mask with the largest score stays: the sum of the kept magnitudes in f32. A magnitude is |w| / 256; infinities and
NaNs count as 2^124, more than eight finite elements of any type. There are 90 masks. A column crosses both halves with
one element in the upper half of the block (rows 0 and 1) and one in the lower half:

    48 masks   two columns cross both halves; one is in the upper half, one in the lower half
     6 masks   two columns are in the upper half, two in the lower half
    36 masks   all columns cross both halves

`best` fixes the order of additions and comparisons for host and GPU; the first of equal sums wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.pattern import Pattern
from louver.formats.rows import Bits
from louver.formats.select import Mask

PATTERN: Final = Pattern(2, 4)

SIDE: Final = PATTERN.m

SCALE: Final = 2.0**-8
INFINITE: Final = 2.0**124

PAIRS: Final = tuple(combinations(range(SIDE), 2))
"""Pairs of columns. Pair -1 - i has the two columns that pair i lacks."""

T = TypeVar("T")


def best(elements: Sequence[Sequence[T]], add: Callable[[T, T], T], larger: Callable[[T, T], T]) -> T:
    """The best mask's score. elements: by row and column. larger: the larger of two sums, the first of equal ones."""
    first, second, third, fourth = elements
    upper = [add(a, b) for a, b in zip(first, second, strict=True)]
    lower = [add(a, b) for a, b in zip(third, fourth, strict=True)]
    crossed_above = [larger(add(first[i], second[j]), add(first[j], second[i])) for i, j in PAIRS]
    crossed_below = [larger(add(third[i], fourth[j]), add(third[j], fourth[i])) for i, j in PAIRS]
    divided = [larger(add(upper[i], lower[j]), add(upper[j], lower[i])) for i, j in PAIRS]
    masks = [add(add(crossed_above[i], crossed_below[i]), divided[-1 - i]) for i in range(len(PAIRS))]
    # Two of the three ways to pair the columns reach all six of these masks.
    masks += [add(divided[i], divided[-1 - i]) for i in (0, 1)]
    halves = [larger(*(add(half[i], half[-1 - i]) for i in (0, 1))) for half in (crossed_above, crossed_below)]
    found = masks[0]
    for mask in (*masks[1:], add(*halves)):
        found = larger(found, mask)
    return found


def score(bits: Bits, element: ElementType) -> NDArray[np.float32]:
    """The term of each element in a mask's score. bits: raw bits of any shape."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(bits.view(element.numpy).astype(np.float32)) * np.float32(SCALE)
    return np.fmin(size, np.float32(INFINITE))


def number(row: int, column: int) -> int:
    """The bit of an element in a mask as an integer."""
    return 1 << SIDE * row + column


def transposable(blocks: Bits, element: ElementType) -> Mask:
    """The best mask of each block. blocks: raw bits [4, 4, count], by row and column. The mask has the same shape."""
    sizes = score(blocks, element)
    elements = [[_Sum(sizes[r, c], np.uint16(number(r, c))) for c in range(SIDE)] for r in range(SIDE)]
    kept = best(elements, _Sum.add, _Sum.larger).mask
    places = np.array([[number(r, c) for c in range(SIDE)] for r in range(SIDE)], np.uint16)
    return (kept & places[:, :, None]) != 0


class _Sum:
    """A partial mask of each block, with its score."""

    def __init__(self, score: NDArray[np.float32], mask: Any) -> None:
        self.score, self.mask = score, mask

    def add(self, other: _Sum) -> _Sum:
        return _Sum(self.score + other.score, self.mask | other.mask)

    def larger(self, other: _Sum) -> _Sum:
        second = other.score > self.score
        return _Sum(np.where(second, other.score, self.score), np.where(second, other.mask, self.mask))
