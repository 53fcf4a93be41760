"""Selects the elements or vectors that a group keeps: the N largest keys, of equal keys the lowest index. Planes are
raw bits [M, height, groups]: `planes[i]` has element i of all vectors. The height of single elements is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.pairs import numbers_of
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
