"""Tests of small arrays by their bytes. For 32 lanes, NumPy's own tests take twenty times as long."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Truths = NDArray[np.bool_]
"""Boolean arrays of any shape."""


def some(truths: Truths) -> bool:
    """Whether any element is true."""
    return 1 in truths.tobytes()


def every(truths: Truths) -> bool:
    """Whether all elements are true."""
    return 0 not in truths.tobytes()


def same(first: Truths, second: Truths) -> bool:
    """Whether two arrays of one shape are equal."""
    return first.tobytes() == second.tobytes()


def no_zero(numbers: NDArray[Any]) -> bool:
    """Whether no number is 0."""
    return np.count_nonzero(numbers) == numbers.size


def all_zero(numbers: NDArray[Any]) -> bool:
    """Whether every number is 0."""
    return np.count_nonzero(numbers) == 0
