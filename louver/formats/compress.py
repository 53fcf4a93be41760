"""Compresses a dense array that keeps a pattern to a sparse tensor."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from louver.formats.check import negative_zeros_lost, too_many
from louver.formats.codes import encode, index_bytes
from louver.formats.dtypes import ElementType, raw_bits
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.rows import Bits, group_start, normal_axis, on_gpu, row_blocks, sparse_operand, to_groups, to_rows
from louver.formats.select import Mask, count_per_group, largest, negative_zeros, nonzero
from louver.formats.tensor import SparseTensor, empty_rows, frozen
from louver.formats.transposable import PATTERN as TRANSPOSABLE


def compress(
    w: Any, pattern: str | Pattern, *, axis: int = -1, method: Literal["magnitude"] | None = None
) -> SparseTensor:
    """The sparse tensor of a dense array that keeps `pattern` along `axis`; `dense()` gives the array back, bit for bit.

    method: prune the array by this method of `prune` first.

    A group with fewer than N non-zeros stores explicit zeros; a -0.0 takes such a slot before a +0.0 does, the lowest
    index first, and one that finds none becomes +0.0 and is counted in `negative_zeros_dropped`.
    A sparse axis that is not a multiple of M is filled up with zeros; `shape` remembers its size.
    An array on a GPU is compressed there, to a tensor whose arrays are on that GPU, of the same library.
    Raises ValueError for a group with more than N non-zeros, naming the first, and for an element type, pattern or axis
    that is not supported.
    """
    if (there := on_gpu(w)) is not None:
        return there.compress(w, pattern, axis=axis, method=method)
    pattern = Pattern.of_elements(pattern)
    array, element = sparse_operand(w if method is None else prune(w, pattern, axis=axis, method=method))
    axis = normal_axis(axis, array.ndim)
    rows = to_rows(array, axis)
    groups = pattern.groups(rows.shape[1])
    values = empty_rows(len(rows), groups * pattern.n, element)
    indices = np.empty((len(rows), index_bytes(pattern, groups)), np.uint8)
    stored = raw_bits(values)
    dropped = 0
    for block in row_blocks(*rows.shape):
        count = block.stop - block.start
        of_block = to_groups(rows[block], pattern)
        counts, keys, lost = _slots(np.ascontiguousarray(of_block.T), pattern, element)
        if counts.max(initial=0) > pattern.n:
            bad = int(np.argmax(counts > pattern.n))
            start = group_start(block.start * groups + bad, array.shape, axis, pattern)
            raise too_many(pattern, axis, int(counts[bad]), start)
        keep: Mask = np.ascontiguousarray(largest(keys, pattern.n).T)
        stored[block] = of_block[keep].reshape(count, groups * pattern.n)
        indices[block] = encode(keep, count, pattern)
        dropped += lost
    return SparseTensor(pattern, element, array.shape, axis, frozen(values), frozen(indices), dropped)


def compress_both(w: Any) -> tuple[SparseTensor, SparseTensor]:
    """An array [..., M, K], pruned by transposable 2:4 masks as `prune` does, as two sparse tensors: along K, and along M.

    Both are of the whole array; `dense()` of either gives the pruned one. An array on a GPU is read once. Raises ValueError as `prune` and `compress`.
    """
    if (there := on_gpu(w)) is not None:
        return there.compress_both(w)
    pruned = prune(w, TRANSPOSABLE, transposable=True)
    return compress(pruned, TRANSPOSABLE), compress(pruned, TRANSPOSABLE, axis=-2)


def _slots(planes: Bits, pattern: Pattern, element: ElementType) -> tuple[NDArray[np.uint16], NDArray[np.uint8], int]:
    """Of groups [M, groups]: non-zeros of each, who comes first for the slots, and how many -0.0 find none."""
    taken = nonzero(planes, element)
    counts = count_per_group(taken)
    keys = taken.view(np.uint8) * np.uint8(2)
    negative = negative_zeros(planes, element)
    if negative is None:
        return counts, keys, 0
    keys |= negative.view(np.uint8)
    return counts, keys, negative_zeros_lost(counts, count_per_group(negative), pattern)
