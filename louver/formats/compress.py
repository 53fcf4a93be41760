"""Compresses a dense array that keeps a pattern to a sparse tensor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from louver.formats.codes import encode, index_bytes
from louver.formats.dtypes import raw_bits
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows, normal_axis, sparse_operand, to_planes, to_rows
from louver.formats.select import Mask, Slots, largest
from louver.formats.tensor import SparseTensor, empty_rows, frozen


def compress(w: ArrayLike, pattern: str | Pattern, *, axis: int = -1) -> SparseTensor:
    """The sparse tensor of a dense array that keeps `pattern` along `axis`; `dense()` gives the array back, bit for bit.

    A group with fewer than N non-zeros stores explicit zeros; a -0.0 takes such a slot before a +0.0 does, the lowest
    index first, and one that finds none becomes +0.0 and is counted in `negative_zeros_dropped`.
    A sparse axis that is not a multiple of M is filled up with zeros; `shape` remembers its size. Of N:M@L the same holds of vectors,
    of which one with a single non-zero is kept whole; `louver.prune` says where vectors lie.
    Raises ValueError for a group with more than N non-zeros, naming the first, and for an element type, pattern or axis
    that is not supported.
    """
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    rows, windows = to_rows(array, axis), Windows(array.shape, axis, pattern)
    kept = windows.groups * pattern.n
    values = empty_rows(len(rows), kept, element)
    indices = np.empty((windows.count, index_bytes(pattern, windows.groups)), np.uint8)
    stored = raw_bits(values)
    dropped = 0
    for block, lists in windows.blocks():
        tiles = windows.tiles(rows[block])
        slots = Slots.of(to_planes(tiles), element)
        if slots.counts.max(initial=0) > pattern.n:
            bad = int(np.argmax(slots.counts > pattern.n))
            start = windows.start(lists.start * windows.groups + bad)
            what = "non-zeros" if pattern.length == 1 else f"non-zero vectors of {pattern.length} elements"
            raise ValueError(
                f"{pattern} allows {pattern.n} {what} in each group of {pattern.m} along axis {axis}, got "
                f"{slots.counts[bad]} in the group at {list(start)}: prune first, or see check() for all such groups"
            )
        keep: Mask = np.ascontiguousarray(largest(slots.keys, pattern.n).T)
        mask = np.broadcast_to(keep.reshape(len(tiles), 1, *tiles.shape[2:]), tiles.shape)
        stored[block] = tiles[mask].reshape(-1, kept)[: block.stop - block.start]
        indices[lists] = encode(keep, len(tiles), pattern)
        dropped += slots.negative_zeros_lost(pattern.n)
    return SparseTensor(pattern, element, array.shape, axis, frozen(values), frozen(indices), dropped)
