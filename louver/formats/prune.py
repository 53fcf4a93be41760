"""Prunes a dense array: returns it with zeros."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.given import shown
from louver.formats.pattern import Pattern
from louver.formats.rows import from_rows, normal_axis, row_blocks, sparse_operand, to_groups, to_rows
from louver.formats.select import largest, magnitude_keys


def prune(
    w: ArrayLike, pattern: str | Pattern, *, axis: int = -1, method: Literal["magnitude"] = "magnitude"
) -> NDArray[Any]:
    """A copy of `w`, same shape and dtype, with all but N elements of each group of M along `axis` set to +0.0.

    magnitude: the N largest absolute values stay, bit for bit; equal ones by lowest index. Infinities and NaNs count as
    equal and larger than every finite value. A last group that is cut off counts as filled with zeros.
    Raises ValueError for an element type, pattern, axis or method that is not supported.
    """
    pattern = Pattern.of_elements(pattern)
    array, element = sparse_operand(w)
    axis = normal_axis(axis, array.ndim)
    wanted = cast("object", method)
    if not isinstance(wanted, str) or wanted != "magnitude":
        raise ValueError(
            f'prune has the method "magnitude", got {shown(wanted)}: multiply by a mask of your own instead'
        )
    rows = to_rows(array, axis)
    size = rows.shape[1]
    pruned = np.empty_like(rows)
    for block in row_blocks(*rows.shape):
        groups = to_groups(rows[block], pattern)
        keep = largest(magnitude_keys(np.ascontiguousarray(groups.T), element), pattern.n)
        kept = groups * np.ascontiguousarray(keep.T)
        pruned[block] = kept.reshape(block.stop - block.start, pattern.groups(size) * pattern.m)[:, :size]
    return from_rows(pruned, array.shape, axis, element)
