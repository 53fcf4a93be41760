"""Selects the elements or vectors of a group that are kept: the N with the largest keys, ties going to the lowest index.

Planes are raw bits [M, height, groups]: element i of all vectors at [i], or a height of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.rows import Bits

Mask = NDArray[np.bool_]

Norm: TypeAlias = Literal["l1", "l2"]
"""The size by which vectors are compared: by the sum of their magnitudes, or of their squares."""


def largest(keys: NDArray[Any], n: int) -> Mask:
    """True for the `n` largest of each group. keys and result: [M, groups]; equal keys rank by index, lowest first."""
    m = len(keys)
    losses = np.zeros(keys.shape, np.uint8)
    for i in range(m - 1):
        wins = keys[i] >= keys[i + 1 :]
        losses[i + 1 :] += wins
        losses[i] += np.uint8(m - 1 - i) - np.add.reduce(wins, axis=0, dtype=np.uint8)
    return losses < n


def kept_of(tiles: Bits, mask: Mask, n: int) -> Bits:
    """The vectors of tiles [windows, height, groups, M] that a mask [windows, groups, M] keeps, N of each group, as tiles of one row:
    [windows * height, 1, groups, N].
    """
    windows, height, groups, _ = tiles.shape
    return tiles[np.broadcast_to(mask[:, None], tiles.shape)].reshape(windows * height, 1, groups, n)


def kept_elements(masks: Sequence[Mask], height: int) -> Mask:
    """The elements that masks of a pattern's levels keep together, [windows, 1, groups, M], of V:N:M [windows, height, groups, M].

    masks: [lists, groups, M] of each level, the second one of the rows of windows.
    """
    outer, *inner = masks
    kept = outer[:, None]
    for mask in inner:
        kept = np.repeat(kept, height, axis=1)
        kept[kept] = mask.ravel()
    return kept


def magnitude_keys(planes: Bits, element: ElementType) -> NDArray[Any]:
    """Unsigned keys that order raw bits by magnitude; infinities and NaNs are equal and above every finite value. Any shape."""
    if element.floating:
        # The bits of a positive floating-point number order as the number does, NaN last.
        return np.minimum(planes & element.magnitude_mask, element.largest_magnitude)
    # NumPy's abs(-128) is -128, whose bits are those of 128.
    return np.abs(planes.view(element.numpy)).view(element.bits_dtype)


def norm_keys(planes: Bits, element: ElementType, norm: Norm) -> NDArray[np.float32]:
    """Keys [M, groups] that order vectors by their norm; those with an infinity or a NaN are equal and above every other.

    Sums are in f32: each magnitude, or its square rounded to f32, is added in the order of the rows, rounded to nearest even, subnormal
    numbers kept. A sum that overflows counts as infinite.
    """
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        terms = np.abs(planes.view(element.numpy).astype(np.float32))
        if norm == "l2":
            terms *= terms
        total = terms[:, 0].copy()
        for row in range(1, terms.shape[1]):
            total += terms[:, row]
    # fmin would keep a signalling NaN.
    total[np.isnan(total)] = np.inf
    return total


def nonzero(planes: Bits, element: ElementType) -> Mask:
    """True for elements other than zero; -0.0 is zero. Any shape."""
    return (planes & element.magnitude_mask) != 0


def negative_zeros(planes: Bits, element: ElementType) -> Mask | None:
    """True for -0.0; None for integer types. Any shape."""
    return None if element.negative_zero is None else planes == element.negative_zero


@dataclass(frozen=True, slots=True)
class Slots:
    """The vectors that take the slots of groups when they are compressed.

    counts: vectors of each group that are not zero, uint16 [groups]. keys: uint8 [M, groups], non-zero vectors first, then those
    with a -0.0. negatives: True for each -0.0, [M, height, groups], None where there is none.
    """

    counts: NDArray[np.uint16]
    keys: NDArray[np.uint8]
    negatives: Mask | None

    @classmethod
    def of(cls, planes: Bits, element: ElementType) -> Slots:
        """Of the groups of planes."""
        taken: Mask = np.logical_or.reduce(nonzero(planes, element), axis=1)
        counts = _per_group(taken)
        keys = taken.view(np.uint8) * np.uint8(2)
        negative = negative_zeros(planes, element)
        if negative is None or not negative.any():
            return cls(counts, keys, None)
        keys |= np.logical_or.reduce(negative, axis=1).view(np.uint8)
        return cls(counts, keys, negative)

    def negative_zeros_lost(self, n: int) -> int:
        """The number of -0.0 that find no slot, in groups that keep to N."""
        if self.negatives is None:
            return 0
        too_many = _per_group(self.keys != 0).astype(np.int64) - n
        short = (too_many > 0) & (self.counts <= n)
        if self.negatives.shape[1] == 1:
            return int(too_many[short].sum())
        gone = ~largest(self.keys[:, short], n)
        return int(np.count_nonzero(self.negatives[:, :, short] & gone[:, None]))


def _per_group(mask: Mask) -> NDArray[np.uint16]:
    """The number of true elements of each group: [groups] of [M, groups]."""
    return np.add.reduce(mask, axis=0, dtype=np.uint16)
