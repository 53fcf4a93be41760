"""Sizes of a product by a call's numbers: as text, "M", "64" or "K/2", as `ProductNest.equal` has them."""

from __future__ import annotations

from collections.abc import Mapping


def size(text: str, numbers: Mapping[str, int | float]) -> int:
    """The number that a size stands for, in a call with these numbers."""
    name, *divisors = text.split("/")
    value = int(name) if name.lstrip("-").isdigit() else int(numbers[name])
    for divisor in divisors:
        value //= int(divisor)
    return value
