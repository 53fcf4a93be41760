"""Prunes a dense array: sets the smallest elements or vectors of each group to zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, check_switch, raw_bits, shown
from louver.formats.dynamo import opaque
from louver.formats.pattern import Pattern
from louver.formats.rows import (
    Bits,
    Windows,
    from_rows,
    normal_axis,
    on_gpu,
    row_blocks,
    sparse_operand,
    to_planes,
    to_rows,
)
from louver.formats.select import PATTERN, SIDE, Mask, Norm, kept_elements, kept_of, largest, magnitude_keys, norm_keys
from louver.formats.select import transposable as transposable_mask
from louver.formats.torch_tensors import like

if TYPE_CHECKING:
    from louver.formats.kinds import Array


@opaque
def prune(
    w: Array,
    pattern: str | Pattern,
    *,
    axis: int = -1,
    method: Literal["magnitude"] = "magnitude",
    norm: Norm = "l2",
    transposable: bool = False,
) -> Array:
    """A copy of `w`, same shape and dtype. All but N elements of each group of M along `axis` are +0.0.

    - N:M keeps the N largest magnitudes bit for bit, ties by lowest index. Infinities and NaNs are equal and largest.
    - N:M@L keeps the N vectors of the largest norm: L elements along the last other axis, or fewer at its end.
    - V:N:M keeps the 4 vectors of the largest norm, and of their elements the 2 largest magnitudes in each row.

    A last group that is cut off counts as filled with zeros.
    norm: "l1", the sum of magnitudes, or "l2", the sum of squares, which loses the least of ‖w‖. Sums are in f32, in
        the order of the elements. A sum that overflows is infinite. Single elements rank the same by either norm. A pair
        (`louver.pack_pairs`) is a vector of two numbers.
    transposable: the result keeps 2:4 along both of the last two axes; `axis` is one of them. Each 4 × 4 block keeps
        the mask with the largest sum of magnitudes (exact rule: `louver.formats.select`), whatever the norm.
    An array on a GPU is pruned there. The result has the library of `w`: PyTorch for a tensor on the CPU too, which
    carries no gradient; NumPy for lists. A parameter is data, but not the result of an operation with a gradient.
    Raises ValueError for an element type, pattern, axis, method or norm that is not supported.
    """
    check_switch("transposable", transposable)
    if (there := on_gpu(w)) is not None:
        return there.prune(w, pattern, axis=axis, method=method, norm=norm, transposable=transposable)
    pattern = Pattern.parse(pattern)
    operand: Any = w
    array, element = sparse_operand(operand)
    axis = normal_axis(axis, array.ndim)
    check_method(method, norm)
    if transposable:
        check_transposable(pattern, array.ndim, axis)
        if element.numbers > 1:
            raise ValueError(
                f"transposable masks are of numbers of their own, got pairs of {element}: leave transposable out"
            )
        return like(w, _prune_blocks(array, element))
    rows = to_rows(array, axis)
    windows = Windows(array.shape, axis, pattern)
    pruned = np.empty_like(rows)
    for block in windows.blocks():
        part = rows[block.rows, block.columns]
        tiles = block.inside.tiles(part)
        kept = tiles * _kept(tiles, pattern, element, norm)
        kept = kept.reshape(-1, block.inside.groups * pattern.m)
        pruned[block.rows, block.columns] = kept[: part.shape[0], : part.shape[1]]
    return like(w, from_rows(pruned, array.shape, axis, element))


def _kept(tiles: Bits, pattern: Pattern, element: ElementType, norm: Norm) -> Mask:
    """The mask [windows, height or 1, groups, M] of the elements of tiles [windows, height, groups, M] that stay."""
    height, masks = tiles.shape[1], list[Mask]()
    for level in pattern.levels:
        planes = to_planes(tiles)
        single = level.length == 1 and element.numbers == 1
        keys = magnitude_keys(planes[:, 0], element) if single else norm_keys(planes, element, norm)
        keep: Mask = np.ascontiguousarray(largest(keys, level.n).T)
        masks.append(keep.reshape(len(tiles), tiles.shape[2], level.m))
        tiles = kept_of(tiles, masks[-1], level.n)
    return kept_elements(masks, height)


def check_method(method: object, norm: object = "l2") -> None:
    """Raises ValueError for a method or a norm that `prune` does not have."""
    if not isinstance(method, str) or method != "magnitude":
        raise ValueError(
            f'prune has the method "magnitude", got {shown(method)}: multiply by a mask of your own instead'
        )
    if not isinstance(norm, str) or norm not in ("l1", "l2"):
        raise ValueError(f'prune compares vectors by the norm "l1" or "l2", got {shown(norm)}')


def check_transposable(pattern: Pattern, ndim: int, axis: int) -> None:
    """Raises ValueError for a pattern, or an axis (from 0 on), without transposable masks."""
    if pattern != PATTERN:
        raise ValueError(f"transposable masks are {PATTERN}, got {pattern}: leave transposable out")
    if ndim < 2 or axis < ndim - 2:
        raise ValueError(
            f"a transposable mask is of the last two axes, got {ndim} dimensions and axis {axis}: move the axes there first"
        )


def _prune_blocks(array: NDArray[Any], element: ElementType) -> NDArray[Any]:
    *batch, rows, columns = array.shape
    pruned = np.zeros(array.shape, element.bits_dtype)
    padding = ((0, -rows % SIDE), (0, -columns % SIDE))
    for entry in np.ndindex(*batch):
        whole = np.pad(raw_bits(np.ascontiguousarray(array[entry])), padding)
        strips = whole.reshape(whole.shape[0] // SIDE, SIDE, whole.shape[1])
        for some in row_blocks(len(strips), SIDE * whole.shape[1]):
            blocks = strips[some].reshape(some.stop - some.start, SIDE, -1, SIDE).transpose(1, 3, 0, 2)
            keep = transposable_mask(np.ascontiguousarray(blocks).reshape(SIDE, SIDE, -1), element)
            strips[some] *= keep.reshape(blocks.shape).transpose(2, 0, 3, 1).reshape(strips[some].shape)
        pruned[entry] = whole[:rows, :columns]
    return pruned.view(element.numpy)
