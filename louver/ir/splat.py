"""Reads the number of a constant tensor from its bytes. xDSL would decode every element, and a tile has thousands."""

from __future__ import annotations

from typing import Any, cast

from xdsl.dialects.builtin import DenseIntOrFPElementsAttr


def is_splat(numbers: DenseIntOrFPElementsAttr) -> bool:
    """Whether all elements have the same bits."""
    data: bytes = numbers.data.data
    first = data[: _size(numbers)]
    return data == first * (len(data) // len(first))


def first_of(numbers: DenseIntOrFPElementsAttr) -> int | float:
    """The first element."""
    return cast(Any, numbers.get_element_type()).unpack(numbers.data.data[: _size(numbers)], 1)[0]


def splat_of(numbers: DenseIntOrFPElementsAttr) -> int | float | None:
    """The number of all elements; None if their bits differ."""
    return first_of(numbers) if is_splat(numbers) else None


def _size(numbers: DenseIntOrFPElementsAttr) -> int:
    """Bytes of an element."""
    return cast(Any, numbers.get_element_type()).compile_time_size
