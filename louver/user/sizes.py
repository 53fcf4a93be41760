"""Sizes of a product by a call's numbers: as text, "M", "64", "K/2", "2*M" or "128*programs x", as `ProductNest` prints them.

Those that register tiles take for granted may be of two arguments too, "M*K", "stride/K" and "first+K".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

AXES = "xyz"


def with_grid(numbers: Mapping[str, int | float], grid: Sequence[int]) -> dict[str, int | float]:
    """A call's numbers, and how many programs it has along each axis, as sizes name them."""
    padded = (*grid, 1, 1)
    return {**numbers, **{f"programs {letter}": padded[axis] for axis, letter in enumerate(AXES)}}


def size(text: str, numbers: Mapping[str, int | float]) -> int:
    """The number that a size stands for, in a call with these numbers."""
    return sum(_product(term, numbers) for term in text.split("+"))


def _product(text: str, numbers: Mapping[str, int | float]) -> int:
    product, *divisors = text.split("/")
    value = 1
    for factor in product.split("*"):
        value *= _number(factor, numbers)
    for divisor in divisors:
        # A stride of 0 fits in as often as one likes.
        value //= _number(divisor, numbers) or 1
    return value


def _number(text: str, numbers: Mapping[str, int | float]) -> int:
    return int(text) if text.lstrip("-").isdigit() else int(numbers[text])
