"""Transposable 2:4 masks: two of four elements are kept in each row and in each column of a block of 4 × 4.

The mask with the largest score is kept: the sum of its magnitudes, in f32. A magnitude is |w| / 256; infinities and NaNs count as
2^124, more than eight finite elements of any type. There are 90 masks. A column has its two elements in the upper half of
the block (rows 0 and 1), in the lower half, or one in each. So a mask is one of these, with x, y, z, w the columns in some order:

    48 masks   y and z cross both halves; x is in one half, w in the other
     6 masks   two columns are in the upper half, two in the lower one
    36 masks   all columns cross both halves

`best` adds and compares in this order, and takes the first of equal sums. That is the definition, on the host and on a GPU.
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
"""The only pattern that has transposable masks here."""

SIDE: Final = PATTERN.m
"""Rows and columns of a block."""

SCALE: Final = 2.0**-8
INFINITE: Final = 2.0**124

PAIRS: Final = tuple(combinations(range(SIDE), 2))
"""Pairs of columns. The other two columns of pair i are pair -1 - i."""

T = TypeVar("T")


def best(elements: Sequence[Sequence[T]], add: Callable[[T, T], T], larger: Callable[[T, T], T]) -> T:
    """The sum of the elements that the best mask of a block keeps. elements: by row and column. larger: the first of equal ones."""
    first, second, third, fourth = elements
    upper = [add(a, b) for a, b in zip(first, second, strict=True)]
    lower = [add(a, b) for a, b in zip(third, fourth, strict=True)]
    crossed_above = [larger(add(first[i], second[j]), add(first[j], second[i])) for i, j in PAIRS]
    crossed_below = [larger(add(third[i], fourth[j]), add(third[j], fourth[i])) for i, j in PAIRS]
    divided = [larger(add(upper[i], lower[j]), add(upper[j], lower[i])) for i, j in PAIRS]
    masks = [add(add(crossed_above[i], crossed_below[i]), divided[-1 - i]) for i in range(len(PAIRS))]
    # Two of the three ways to make two pairs of columns reach all masks of these kinds.
    masks += [add(divided[i], divided[-1 - i]) for i in (0, 1)]
    halves = [larger(*(add(half[i], half[-1 - i]) for i in (0, 1))) for half in (crossed_above, crossed_below)]
    found = masks[0]
    for mask in (*masks[1:], add(*halves)):
        found = larger(found, mask)
    return found


def score(bits: Bits, element: ElementType) -> NDArray[np.float32]:
    """The summands of a mask's score, one for each element. bits: raw, of any shape."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.abs(bits.view(element.numpy).astype(np.float32)) * np.float32(SCALE)
    return np.fmin(size, np.float32(INFINITE))


def number(row: int, column: int) -> int:
    """The bit of an element in a mask that is one number."""
    return 1 << SIDE * row + column


def transposable(blocks: Bits, element: ElementType) -> Mask:
    """The mask of each block. blocks: raw bits [4, 4, count], rows first; the mask has their shape."""
    sizes = score(blocks, element)
    elements = [[_Sum(sizes[r, c], np.uint16(number(r, c))) for c in range(SIDE)] for r in range(SIDE)]
    kept = best(elements, _Sum.add, _Sum.larger).mask
    places = np.array([[number(r, c) for c in range(SIDE)] for r in range(SIDE)], np.uint16)
    return (kept & places[:, :, None]) != 0


class _Sum:
    """A part of a mask for each block, and its score."""

    def __init__(self, score: NDArray[np.float32], mask: Any) -> None:
        self.score, self.mask = score, mask

    def add(self, other: _Sum) -> _Sum:
        return _Sum(self.score + other.score, self.mask | other.mask)

    def larger(self, other: _Sum) -> _Sum:
        second = other.score > self.score
        return _Sum(np.where(second, other.score, self.score), np.where(second, other.mask, self.mask))
