"""Makes sparse tensors from a dense array that keeps a pattern, or from kept values with their indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from louver.formats.check import too_many_at
from louver.formats.codes import encode, encode_into, index_bytes
from louver.formats.dtypes import ElementType, element_type, integer, raw_bits
from louver.formats.dynamo import opaque
from louver.formats.pattern import Pattern
from louver.formats.prune import prune
from louver.formats.rows import Bits, Block, Windows, normal_axis, on_gpu, sparse_operand, to_planes, to_rows
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.formats.select import Mask, Slots, kept_of, largest
from louver.formats.tensor import SparseTensor, empty_rows, frozen
from louver.formats.torch_tensors import library_of


@opaque
def compress(
    w: Any, pattern: str | Pattern, *, axis: int = -1, method: Literal["magnitude"] | None = None
) -> SparseTensor:
    """The sparse tensor of a dense array that keeps `pattern` along `axis`. `dense()` gives the same bits back.

    method: prune the array first, by this method of `louver.prune`.

    A group with fewer than N non-zeros stores zeros in its free slots: first -0.0, then +0.0, each from the lowest
    index on. A -0.0 without a slot becomes +0.0 and is counted in `negative_zeros_dropped`. N:M@L keeps whole vectors
    (layout: `louver.prune`) by the same rules. A sparse axis that is not a multiple of M is filled with zeros; `shape`
    holds its true size. An array on a GPU is compressed there; the result's arrays are there too, of the same library.
    Of a PyTorch tensor on the CPU, `dense()` is one too. A parameter is data, see `louver.prune`.
    Raises ValueError for an unsupported element type, pattern or axis, and for a group of more than N non-zeros.
    """
    if (there := on_gpu(w)) is not None:
        return there.compress(w, pattern, axis=axis, method=method)
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(w if method is None else prune(w, pattern, axis=axis, method=method))
    axis = normal_axis(axis, array.ndim)
    rows, windows = to_rows(array, axis), Windows(array.shape, axis, pattern)
    kept = windows.groups * pattern.n
    values = empty_rows(len(rows), kept, element)
    indices = np.empty((windows.count, index_bytes(pattern, windows.groups, windows.height)), np.uint8)
    stored = raw_bits(values)
    dropped = 0
    for block in windows.blocks():
        part = rows[block.rows, block.columns]
        tiles, masks, lost = _kept(block.inside.tiles(part), windows, element, block)
        own, first = block.inside.groups * pattern.n, block.groups * pattern.n
        stored[block.rows, first : first + own] = tiles.reshape(-1, own)[: len(part)]
        encode_into(indices, masks, block, windows)
        dropped += lost
    return SparseTensor(
        pattern, element, array.shape, axis, frozen(values), frozen(indices), dropped, library=library_of(w)
    )


def _kept(
    tiles: Bits, windows: Windows, element: ElementType, block: Block | None = None
) -> tuple[Bits, list[Mask], int]:
    """The kept elements of tiles [windows, height, groups, M], each level's mask [lists, groups, M], and how many -0.0
    are lost. block: that of the tiles; None for tiles that keep the pattern. Raises ValueError for a group with more
    than N non-zeros.
    """
    masks, lost = list[Mask](), 0
    for level in windows.pattern.levels:
        slots = Slots.of(to_planes(tiles), element)
        if block is not None and slots.counts.max(initial=0) > level.n:
            raise too_many_at(windows, block, level, slots.counts)
        keep: Mask = np.ascontiguousarray(largest(slots.keys, level.n).T)
        masks.append(keep.reshape(len(tiles), tiles.shape[2], level.m))
        tiles = kept_of(tiles, masks[-1], level.n)
        lost += slots.negative_zeros_lost(level.n)
    return tiles, masks, lost


@opaque
def from_indices(
    values: ArrayLike, indices: ArrayLike, pattern: str | Pattern, shape: Sequence[int], *, axis: int = -1
) -> SparseTensor:
    """The sparse tensor of kept values and indices, as in `s.values` and `s.unpacked_indices()`. Both are copied.

    values: [rows, kept], N for each group. shape, axis: of the dense array.
    indices: integers from 0 to M - 1, in a group in any order: [rows, kept], for N:M@L [windows, kept] for L rows each.
    NM-SpMM's B' [w, n] and D [w, q] of a matrix B [k, n] are `from_indices(b.T, d.T, pattern, (k, n), axis=0)`.
    Raises TypeError or ValueError for other types or shapes, or an index that is out of range or repeated in a group.
    Raises ValueError for more than 4 vectors of a V:N:M window in a group, and for values but +0.0 past the axis.
    """
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(values)
    sizes = tuple(integer(size, "the shape of a sparse tensor has integers") for size in shape)
    axis = normal_axis(axis, len(sizes))
    windows = Windows(sizes, axis, pattern)
    by_row = pattern.length == 1 or len(pattern.levels) > 1
    of_rows = np.arange(windows.rows) if by_row else windows.of_rows()
    given, expected = np.asarray(indices), (windows.rows if by_row else windows.count, windows.groups * pattern.n)
    if given.dtype.kind not in "iu" or given.shape != expected:
        raise ValueError(
            f"indices of {pattern} for shape {list(sizes)} along axis {axis} are integers of shape {list(expected)}, got {given.dtype} "
            f"of shape {list(given.shape)}"
        )
    if array.shape != (windows.rows, expected[1]):
        raise ValueError(f"values are of shape {[windows.rows, expected[1]]}, got {list(array.shape)}")
    groups = given.reshape(-1, pattern.n)
    order = np.argsort(groups, axis=1, kind="stable")
    ordered = np.take_along_axis(groups, order, axis=1)
    bad = (ordered[:, 0] < 0) | (ordered[:, -1] >= pattern.m) | (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if bad.any():
        number, group = divmod(int(np.argmax(bad)), windows.groups)
        raise ValueError(
            f"the indices of a group of {pattern} are from 0 to {pattern.m - 1}, each once, got {groups[np.argmax(bad)].tolist()} in "
            f"{'row' if by_row else 'window'} {number}, group {group}"
        )
    keep: Mask = np.zeros((len(groups), pattern.m), np.bool_)
    np.put_along_axis(keep, ordered.astype(np.intp), True, axis=1)
    columns = (order + np.arange(len(groups))[:, None] % windows.groups * pattern.n).reshape(expected)
    stored = empty_rows(windows.rows, expected[1], element)
    raw_bits(stored)[:] = np.take_along_axis(raw_bits(np.ascontiguousarray(array)), columns[of_rows], axis=1)
    packed = encode(_masks_of(keep.reshape(expected[0], windows.groups, pattern.m), windows), windows)
    s = SparseTensor(pattern, element, sizes, axis, frozen(stored), frozen(packed), library=library_of(values))
    s.validate()
    return s


def _masks_of(keep: Mask, windows: Windows) -> list[Mask]:
    """Each level's mask. keep: [lists, groups, M] by window, for V:N:M by row. Raises ValueError for too many vectors."""
    pattern = windows.pattern
    if len(pattern.levels) == 1:
        return [keep]
    whole = np.zeros((windows.count * windows.height, *keep.shape[1:]), np.uint8)
    whole[windows.places()] = keep
    tiles = whole.reshape(windows.count, windows.height, *keep.shape[1:])
    vectors = np.count_nonzero(tiles.any(axis=1), axis=2)
    if vectors.max(initial=0) > pattern.shared:
        window, group = np.argwhere(vectors > pattern.shared)[0].tolist()
        raise ValueError(
            f"the rows of a window of {pattern} keep elements of {pattern.shared} vectors of each group, got {vectors[window, group]} in window "
            f"{window}, group {group}: give all rows of a window indices among the same {pattern.shared}"
        )
    return _kept(tiles, windows, element_type("u8"))[1]


@opaque
def compress_both(w: Any) -> tuple[SparseTensor, SparseTensor]:
    """An array [..., M, K], pruned by transposable 2:4 masks, as two sparse tensors: along K and along M. `dense()` of
    either is the pruned array. An array on a GPU is read once. Raises ValueError as `prune` does.
    """
    if (there := on_gpu(w)) is not None:
        return there.compress_both(w)
    pruned = prune(w, TRANSPOSABLE, transposable=True)
    return compress(pruned, TRANSPOSABLE), compress(pruned, TRANSPOSABLE, axis=-2)
