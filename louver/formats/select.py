"""Selects the elements or vectors that a group keeps: the N largest keys, of equal keys the lowest index. Planes are
raw bits [M, height, groups]: `planes[i]` has element i of all vectors. The height of single elements is 1.

Transposable 2:4 masks: each row and each column of a 4 × 4 block keeps two of its four elements.

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
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.pairs import numbers_of
from louver.formats.pattern import Pattern
from louver.formats.rows import Bits

Mask = NDArray[np.bool_]

Norm: TypeAlias = Literal["l1", "l2"]
"""The norm that ranks vectors: the sum of magnitudes (l1) or of squares (l2)."""


def largest(keys: NDArray[Any], n: int) -> Mask:
    """True for the `n` largest of each group, of equal keys the lowest index. keys and result: [M, groups]."""
    m = len(keys)
    losses = np.zeros(keys.shape, np.uint8)
    for i in range(m - 1):
        wins = keys[i] >= keys[i + 1 :]
        losses[i + 1 :] += wins
        losses[i] += np.uint8(m - 1 - i) - np.add.reduce(wins, axis=0, dtype=np.uint8)
    return losses < n


def kept_of(tiles: Bits, mask: Mask, n: int) -> Bits:
    """The N vectors of each group that a mask [windows, groups, M] keeps of tiles [windows, height, groups, M], as
    tiles of one row: [windows * height, 1, groups, N].
    """
    windows, height, groups, _ = tiles.shape
    return tiles[np.broadcast_to(mask[:, None], tiles.shape)].reshape(windows * height, 1, groups, n)


def kept_elements(masks: Sequence[Mask], height: int) -> Mask:
    """The elements that the masks of all levels keep: [windows, 1, groups, M], for V:N:M [windows, height, groups, M].

    masks: [lists, groups, M] of each level. A list of the second level is a row of a window.
    """
    outer, *inner = masks
    kept = outer[:, None]
    for mask in inner:
        kept = np.repeat(kept, height, axis=1)
        kept[kept] = mask.ravel()
    return kept


def magnitude_keys(planes: Bits, element: ElementType) -> NDArray[Any]:
    """Unsigned keys that order raw bits of any shape by magnitude. Infinities and NaNs are equal and largest."""
    if element.floating:
        # The bits of positive floating-point numbers have the order of the numbers; NaN comes last.
        return np.minimum(planes & element.magnitude_mask, element.largest_magnitude)
    # NumPy's abs(-128) is -128. Its bits read as unsigned are 128.
    return np.abs(planes.view(element.numpy)).view(element.bits_dtype)


def norm_keys(planes: Bits, element: ElementType, norm: Norm) -> NDArray[np.float32]:
    """Keys [M, groups] that order vectors by norm. Vectors with an infinity or a NaN are equal and exceed all others.
    Magnitudes, or squares rounded to f32, are added in row order in f32: nearest even, with subnormals and infinity.
    A pair counts as a vector of two numbers.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        terms = np.abs(numbers_of(planes, element).astype(np.float32))
        if norm == "l2":
            terms *= terms
        if element.numbers > 1:
            terms = terms.sum(-1)
        total = terms[:, 0].copy()
        for row in range(1, terms.shape[1]):
            total += terms[:, row]
    # `fmin` would keep a signalling NaN.
    total[np.isnan(total)] = np.inf
    return total


def nonzero(planes: Bits, element: ElementType) -> Mask:
    """True for non-zero elements; -0.0 is zero. Any shape."""
    return (planes & element.magnitude_mask) != 0


def negative_zeros(planes: Bits, element: ElementType) -> Mask | None:
    """True for -0.0; None for integer types. Any shape."""
    return None if element.negative_zero is None else planes == element.negative_zero


@dataclass(frozen=True, slots=True)
class Slots:
    """The vectors that take the slots of each group in `compress`.

    counts: non-zero vectors of each group, uint16 [groups]. negatives: where -0.0 is, [M, height, groups], or None.
    keys: uint8 [M, groups] that rank non-zero vectors first, then vectors with a -0.0.
    """

    counts: NDArray[np.uint16]
    keys: NDArray[np.uint8]
    negatives: Mask | None

    @classmethod
    def of(cls, planes: Bits, element: ElementType) -> Slots:
        taken: Mask = np.logical_or.reduce(nonzero(planes, element), axis=1)
        counts = _per_group(taken)
        keys = taken.view(np.uint8) * np.uint8(2)
        negative = negative_zeros(planes, element)
        if negative is None or not negative.any():
            return cls(counts, keys, None)
        keys |= np.logical_or.reduce(negative, axis=1).view(np.uint8)
        return cls(counts, keys, negative)

    def negative_zeros_lost(self, n: int) -> int:
        """The number of -0.0 without a slot, in groups with at most N non-zero vectors."""
        if self.negatives is None:
            return 0
        too_many = _per_group(self.keys != 0).astype(np.int64) - n
        short = (too_many > 0) & (self.counts <= n)
        if self.negatives.shape[1] == 1:
            return int(too_many[short].sum())
        gone = ~largest(self.keys[:, short], n)
        return int(np.count_nonzero(self.negatives[:, :, short] & gone[:, None]))


def _per_group(mask: Mask) -> NDArray[np.uint16]:
    return np.add.reduce(mask, axis=0, dtype=np.uint16)


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
