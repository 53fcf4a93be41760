"""Tensor maps of the boxes that a kernel copies."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

from louver.compile.signature import BoxParameter
from louver.ir.polynomial import Numbers
from louver.isa.tensormap import TensorMap
from louver.runtime.known_calls import keep_recent
from louver.runtime.tensormap import encode

METADATA_SLACK = 1024
"""Entries of legal codes behind the metadata of register tiles, and behind each row of it: a tile's step along K has no more."""

RECENT_MAPS = 64
"""Encoded tensor maps that are kept: an address or shape seen lately is not encoded again."""


class Held(NamedTuple):
    """The begin of an array, and the number of bytes from there on."""

    address: int
    nbytes: int


def tensor_map(box: BoxParameter, place: Held, numbers: Numbers) -> TensorMap:
    """The map of an array, whose end is the end of what the kernel does not bound.

    Raises ValueError for what bulk copies cannot read: strides that are no whole chunks, nothing, and more than the array has.
    """
    strides = [each.value(numbers) for each in box.strides]
    whole = place.nbytes // box.element_bytes
    if box.part == "metadata":
        # Reads beyond the last row, or behind a row, find legal codes.
        sizes = [strides[0] + METADATA_SLACK, (whole - METADATA_SLACK) // max(1, strides[0])]
    else:
        known = [None if size is None else size.value(numbers) for size in box.sizes]
        steps = [1, *strides]
        last = sum((size - 1) * step for size, step in zip(known, steps, strict=True) if size is not None)
        # As many as lie in the array as a whole: rows of a head may be nearer to each other than heads are long.
        sizes = [
            (whole - 1 - last) // max(1, step) + 1 if size is None else size
            for size, step in zip(known, steps, strict=True)
        ]
    apart = tuple(stride * box.element_bytes for stride in strides)
    found = TensorMap(place.address, box.element_bytes, tuple(sizes), apart, box.box, box.swizzle, adds=box.adds)
    reached = sizes[0] + sum((size - 1) * stride for size, stride in zip(sizes[1:], strides, strict=True))
    if reached > whole:
        raise ValueError(f"boxes of {box.argument!r} reach {reached} elements, got an array of {whole}")
    return found


def encoded_map(box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
    """The map as the driver encodes it. Raises as `tensor_map`, and DriverError."""
    return encode(tensor_map(box, place, numbers))


class RecentMaps:
    """`encoded_map`, which keeps those of a kernel's boxes. Threads may share it."""

    __slots__ = ("_maps", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[str, Callable[[Numbers], object]] = {}
        self._maps: dict[tuple[object, ...], bytes] = {}

    def __call__(self, box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
        """The map."""
        of_box = self._numbers.get(box.name)
        if of_box is None:
            leaves = {leaf for size in (*box.sizes, *box.strides) if size is not None for leaf in size.leaves}
            of_box = self._numbers[box.name] = operator.itemgetter(*leaves)
        key = (box.name, place, of_box(numbers))
        found = self._maps.get(key)
        if found is None:
            found = keep_recent(self._maps, key, encoded_map(box, place, numbers), RECENT_MAPS)
        return found
