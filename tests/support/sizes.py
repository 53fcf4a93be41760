"""Sizes by their texts, as a launch computes them."""

from __future__ import annotations

from louver.ir.polynomial import Polynomial, Size


def size(text: str | int) -> Size:
    """The size of a text."""
    return Polynomial.parse(str(text))


def sizes(*texts: str | int | None) -> tuple[Size, ...]:
    """Those of several texts; None stays."""
    return tuple(None if text is None else size(text) for text in texts)  # type: ignore[misc]
