"""Checks of callers' arguments: integers, and the text of any value in an error."""

from __future__ import annotations

from operator import index
from typing import Any, Final, cast

import numpy as np

MAX_BITS: Final = 64
"""Bits of the largest number that any of Louver's arguments can mean; longer ones have no short text either."""


def integer(value: object, rule: str) -> int:
    """A Python or NumPy integer as a Python one.

    rule: the rule for the value, with which errors begin. Raises TypeError for anything else, True and False among it, and
    ValueError for a number of more than 64 bits.
    """
    kind = type(value)
    try:
        number = index(cast(Any, value))
    except TypeError:
        number = None
    if number is None or kind in (bool, np.bool_):
        raise TypeError(f"{rule}, got {kind.__name__}")
    if number.bit_length() > MAX_BITS:
        raise ValueError(f"{rule}, got one of {number.bit_length()} bits")
    return number


def shown(value: object) -> str:
    """A value in an error: a text or None as it is, anything else by its type, which has a name of one line."""
    return repr(value) if isinstance(value, str | None) else f"an object of type {type(value).__name__}"
