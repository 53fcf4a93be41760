"""Prunes a dense array: returns it with zeros."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.given import shown
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows, from_rows, normal_axis, sparse_operand, to_planes, to_rows
from louver.formats.select import Norm, largest, magnitude_keys, norm_keys


def prune(
    w: ArrayLike,
    pattern: str | Pattern,
    *,
    axis: int = -1,
    method: Literal["magnitude"] = "magnitude",
    norm: Norm = "l2",
) -> NDArray[Any]:
    """A copy of `w`, same shape and dtype, with all but N elements of each group of M along `axis` set to +0.0.

    magnitude: the N largest absolute values stay, bit for bit; equal ones by lowest index. Infinities and NaNs count as
    equal and larger than every finite value. A last group that is cut off counts as filled with zeros.
    Of N:M@L the N vectors of the largest norm stay: L elements along the last of the other axes, the last vector of each matrix cut off
    where L does not divide it. norm: "l1", the sum of magnitudes; "l2", of squares, so that the least of ‖w‖ is lost. Sums are in
    f32, in the order of the elements; one that overflows counts as infinite. Elements are the same by either.
    Raises ValueError for an element type, pattern, axis, method or norm that is not supported.
    """
    pattern = Pattern.parse(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    wanted = cast("object", method)
    if not isinstance(wanted, str) or wanted != "magnitude":
        raise ValueError(
            f'prune has the method "magnitude", got {shown(wanted)}: multiply by a mask of your own instead'
        )
    if norm not in ("l1", "l2"):
        raise ValueError(f'prune compares vectors by the norm "l1" or "l2", got {shown(norm)}')
    rows = to_rows(array, axis)
    windows = Windows(array.shape, axis, pattern)
    pruned = np.empty_like(rows)
    for block, _ in windows.blocks():
        tiles = windows.tiles(rows[block])
        planes = to_planes(tiles)
        keys = magnitude_keys(planes[:, 0], element) if pattern.length == 1 else norm_keys(planes, element, norm)
        keep = largest(keys, pattern.n)
        kept = tiles * np.ascontiguousarray(keep.T).reshape(len(tiles), 1, *tiles.shape[2:])
        pruned[block] = kept.reshape(-1, windows.groups * pattern.m)[: block.stop - block.start, : rows.shape[1]]
    return from_rows(pruned, array.shape, axis, element)
