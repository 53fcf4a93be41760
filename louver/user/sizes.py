"""Sizes of a product by a call's numbers: as text, "M", "64", "K/2", "2·M" or "128·programs x", as `ProductNest` prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

AXES = "xyz"


def with_grid(numbers: Mapping[str, int | float], grid: Sequence[int]) -> dict[str, int | float]:
    """A call's numbers, and how many programs it has along each axis, as sizes name them."""
    padded = (*grid, 1, 1)
    return {**numbers, **{f"programs {letter}": padded[axis] for axis, letter in enumerate(AXES)}}


def size(text: str, numbers: Mapping[str, int | float]) -> int:
    """The number that a size stands for, in a call with these numbers."""
    product, *divisors = text.split("/")
    value = 1
    for factor in product.split("·"):
        value *= int(factor) if factor.lstrip("-").isdigit() else int(numbers[factor])
    for divisor in divisors:
        value //= int(divisor)
    return value
