"""Checks of integers and switches among arguments, and the text of a caller's value in an error."""

from __future__ import annotations

from operator import index
from typing import Any, Final, cast

import numpy as np

MAX_BITS: Final = 64
"""Most bits of an integer argument. Longer integers would also make error texts long."""


def integer(value: object, rule: str) -> int:
    """The Python int of a Python or NumPy integer.

    rule: the rule for the value; the error text starts with it.
    Raises TypeError for other types, including bool, and ValueError for a number of more than 64 bits.
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


def check_switch(name: str, value: object) -> None:
    """Raises TypeError unless a value is Python's True or False. name: of the option."""
    if type(value) is not bool:
        raise TypeError(f"{name} is True or False, got {shown(value)}")


def shown(value: object) -> str:
    """The text of a value in an error: the `repr` of a string or None, the type of any other object."""
    return repr(value) if isinstance(value, str | None) else f"an object of type {type(value).__name__}"
