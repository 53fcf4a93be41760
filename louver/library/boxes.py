"""Tensor maps of the boxes that a kernel copies."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from louver.compile.signature import BoxParameter
from louver.ir.polynomial import Numbers
from louver.isa.tensormap import TensorMap
from louver.runtime.known_calls import keep_recent
from louver.runtime.tensormap import encode

METADATA_SLACK = 1024
"""Entries of legal codes after the metadata of register tiles, and after each row of it. A K step of a tile has no more
entries.
"""

RECENT_MAPS = 64
"""Number of encoded tensor maps that are kept. A recent address or shape is not encoded again."""


class Held(NamedTuple):
    """The memory of an array: its address and its size in bytes."""

    address: int
    nbytes: int


def tensor_map(box: BoxParameter, place: Held, numbers: Numbers) -> TensorMap:
    """The tensor map of an array. A dimension without a size in the kernel ends where the array ends.

    Raises ValueError if bulk copies cannot read the boxes: an index may be below 0, strides are not whole chunks, or the
    array is empty.
    """
    below = next((each for each in box.least if each.value(numbers) < 0), None)
    if below is not None:
        raise ValueError(
            f"boxes of {box.argument!r} begin in the array if {below} is at least 0, got {below.value(numbers)}"
        )
    strides = [each.value(numbers) for each in box.strides]
    whole = place.nbytes // box.element_bytes
    if box.part == "metadata":
        # Legal codes follow each row and the last row, so boxes may read beyond them.
        sizes = [strides[0] + METADATA_SLACK, (whole - METADATA_SLACK) // max(1, strides[0])]
    else:
        # Without a size, a dimension has every index that an element of the array can have. The map may reach beyond the
        # array. No load does, and a box has only what its load reads.
        known = [None if size is None else size.value(numbers) for size in box.sizes]
        sizes = [
            (whole - 1) // max(1, step) + 1 if size is None else size
            for size, step in zip(known, [1, *strides], strict=True)
        ]
    if box.free is not None:
        steps = [1, *strides]
        step = steps.pop(box.free)
        last = sum(
            (size - 1) * each for size, each in zip(sizes[: box.free] + sizes[box.free + 1 :], steps, strict=True)
        )
        if last >= step:
            raise ValueError(
                f"boxes of {box.argument!r} begin anywhere along a dimension, whose neighbours are then {last + 1} elements apart, got {step}"
            )
    apart = tuple(stride * box.element_bytes for stride in strides)
    shape = copied_box(box, numbers)
    return TensorMap(place.address, box.element_bytes, tuple(sizes), apart, shape, box.swizzle, adds=box.adds)


def copied_box(box: BoxParameter, numbers: Numbers) -> tuple[int, ...]:
    """The elements that a copy brings in each dimension.

    A tail has no rows outside the array: all SMs together copy only 12 such rows a clock (`benchmarks/box_copies.py`).
    """
    if box.along is None:
        return box.box
    columns, rows, *others = box.box
    return columns, (box.along.value(numbers) - 1) % rows + 1, *others


def encoded_map(box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
    """The tensor map in the driver's encoding. Raises as `tensor_map`, and DriverError."""
    return encode(tensor_map(box, place, numbers))


class RecentMaps:
    """Calls `encoded_map`, and keeps the recent maps of a kernel's boxes. Threads may share it."""

    __slots__ = ("_arrays", "_count", "_maps", "_numbers")

    def __init__(self) -> None:
        self._count = itertools.count()
        self._arrays: dict[BoxParameter, int] = {}
        self._numbers: dict[str, tuple[int, Callable[[Numbers], object]]] = {}
        self._maps: dict[tuple[object, ...], bytes] = {}

    def __call__(self, box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
        """The encoded tensor map, see `encoded_map`. A whole box and a tail of as many rows have one map."""
        known = self._numbers.get(box.name)
        if known is None:
            array = self._arrays.setdefault(replace(box, name="", along=None, tailed=False), next(self._count))
            sizes = (size for size in (*box.sizes, *box.strides) if size is not None)
            leaves = dict.fromkeys(leaf for size in (*sizes, *box.least) for leaf in size.leaves)
            known = self._numbers[box.name] = array, operator.itemgetter(*leaves)
        array, of_box = known
        key = (array, place, copied_box(box, numbers), of_box(numbers))
        found = self._maps.get(key)
        if found is None:
            found = keep_recent(self._maps, key, encoded_map(box, place, numbers), RECENT_MAPS)
        return found
