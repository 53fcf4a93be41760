"""Selects the elements of a group that are kept: the N with the largest keys, ties going to the lowest index."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType
from louver.formats.rows import Bits

Mask = NDArray[np.bool_]


def largest(keys: NDArray[Any], n: int) -> Mask:
    """True for the `n` largest of each group. keys and result: [M, groups]; equal keys rank by index, lowest first."""
    m = len(keys)
    losses = np.zeros(keys.shape, np.uint8)
    for i in range(m - 1):
        wins = keys[i] >= keys[i + 1 :]
        losses[i + 1 :] += wins
        losses[i] += np.uint8(m - 1 - i) - np.add.reduce(wins, axis=0, dtype=np.uint8)
    return losses < n


def magnitude_keys(planes: Bits, element: ElementType) -> NDArray[Any]:
    """Unsigned keys that order raw bits by magnitude; infinities and NaNs are equal and above every finite value."""
    if element.floating:
        # The bits of a positive floating-point number order as the number does, NaN last.
        return np.minimum(planes & element.magnitude_mask, element.largest_magnitude)
    # NumPy's abs(-128) is -128, whose bits are those of 128.
    return np.abs(planes.view(element.numpy)).view(element.bits_dtype)


def nonzero(planes: Bits, element: ElementType) -> Mask:
    """True for elements other than zero; -0.0 is zero. Any shape."""
    return (planes & element.magnitude_mask) != 0


def negative_zeros(planes: Bits, element: ElementType) -> Mask | None:
    """True for -0.0; None for integer types. Any shape."""
    return None if element.negative_zero is None else planes == element.negative_zero


def count_per_group(mask: Mask) -> NDArray[np.uint16]:
    """True elements of each group: uint16 [groups] from [M, groups]."""
    return np.add.reduce(mask, axis=0, dtype=np.uint16)
