"""Arrays as rows along the sparse axis, and rows as windows and groups, in blocks that fit in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.dtypes import SPARSE_TYPES, ElementType, check_unused, element_type, integer, raw_bits
from louver.formats.pattern import Pattern
from louver.formats.torch_tensors import data_of, host_array, is_torch_tensor

Bits = NDArray[Any]
"""Raw bits of elements, as unsigned integers of the same size."""

BLOCK: Final = 1 << 17
"""Elements of a block. The dozen intermediate arrays of a block fit in the cache."""


def sparse_operand(array: ArrayLike) -> tuple[NDArray[Any], ElementType]:
    """The array and its element type. A PyTorch tensor may be of a type that NumPy lacks; it is data, as for
    `louver.formats.torch_tensors.data_of`. Raises TypeError or ValueError for scalars, masked arrays and types that a
    sparse tensor cannot have.
    """
    of_torch = is_torch_tensor(array)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            "a sparse tensor is made of an array whose elements all have values, got a masked one: call filled(…)"
        )
    operand: Any = data_of(array) if of_torch else np.asarray(array)
    if operand.dtype == object:
        raise TypeError(f"a sparse tensor is made of an array of numbers, got {type(array).__name__}: convert it first")
    if operand.ndim == 0:
        raise ValueError("a sparse tensor has at least one dimension, got a scalar: give an array")
    element = element_type(operand.dtype, among=SPARSE_TYPES)
    operand = host_array(operand.cpu()) if of_torch else operand
    check_unused(operand, element)
    return operand, element


_GPU_MEMORY: Final = (2, 13)
"""DLPack's device types of CUDA: device memory and managed memory."""


def on_gpu(array: object) -> Any:
    """The module that implements this room's functions for arrays on a GPU; None for any other array. The import goes
    through the package, because this room may not import that module.
    """
    if isinstance(array, np.ndarray):
        return None
    if is_torch_tensor(array):
        there = bool(getattr(array, "is_cuda", False))
    else:
        where = getattr(array, "__dlpack_device__", None)
        there = hasattr(array, "__cuda_array_interface__") or (where is not None and int(where()[0]) in _GPU_MEMORY)
    if not there:
        return None
    import louver

    return louver.streamed


def normal_axis(axis: object, ndim: int) -> int:
    """The axis counted from 0. Raises TypeError unless it is an integer, ValueError when the array has no such axis."""
    number = integer(axis, f"the sparse axis is an integer from {-ndim} to {ndim - 1}")
    if not -ndim <= number < ndim:
        raise ValueError(
            f"the sparse axis of an array with {ndim} dimensions is from {-ndim} to {ndim - 1}, got {number}"
        )
    return number % ndim


def to_rows(array: NDArray[Any], axis: int) -> Bits:
    """Raw bits [rows, size]: the axis comes last, the other axes are flattened in their order."""
    size = array.shape[axis]
    last = array if axis == array.ndim - 1 else np.moveaxis(array, axis, -1)
    rows = last.reshape(row_count(array.shape, axis), size)
    return raw_bits(np.ascontiguousarray(rows))


def from_rows(rows: Bits, shape: tuple[int, ...], axis: int, element: ElementType) -> NDArray[Any]:
    """The inverse of `to_rows`: an array of `shape` in C order."""
    moved = (*shape[:axis], *shape[axis + 1 :], shape[axis])
    return np.ascontiguousarray(np.moveaxis(rows.view(element.numpy).reshape(moved), -1, axis))


def row_count(shape: tuple[int, ...], axis: int) -> int:
    """Rows along the axis: the product of the other dimensions."""
    return prod((*shape[:axis], *shape[axis + 1 :]))


def row_blocks(rows: int, row_size: int) -> Iterator[slice]:
    """Consecutive slices of at least one row and about `BLOCK` elements; no slice if rows have no elements."""
    step = max(1, BLOCK // max(1, row_size))
    for start in range(0, rows if row_size else 0, step):
        yield slice(start, min(start + step, rows))


PART: Final = 16 * BLOCK
"""Elements of a part of a window. Norms are added row by row, so narrower parts take more steps."""


@dataclass(frozen=True, slots=True)
class Block:
    """Some windows of an array, or some groups of one window. rows, columns: of the array as rows along the sparse axis.

    lists: the windows. inside: the windows of the block alone. groups: the first group of a window that is in the block.
    """

    rows: slice
    columns: slice
    lists: slice
    inside: Windows
    groups: int

    def number(self, group: int, of: Windows) -> int:
        """The number of a group among all groups of `of`. group: its number in the block."""
        window, along = divmod(group, self.inside.groups)
        return (self.lists.start + window) * of.groups + self.groups + along


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of an array: `pattern.length` rows of one matrix that keep the same elements.

    shape, axis: of the array. A matrix has the sparse axis and the last of the other axes; vectors run along the
        latter. Rows past its end count as zeros. With a length of 1 each row is a window.
    """

    shape: tuple[int, ...]
    axis: int
    pattern: Pattern

    @property
    def rows(self) -> int:
        """Rows of all matrices."""
        return row_count(self.shape, self.axis)

    @property
    def across(self) -> int:
        """Rows of a matrix."""
        others = (*self.shape[: self.axis], *self.shape[self.axis + 1 :])
        return others[-1] if others else 1

    @property
    def groups(self) -> int:
        """Groups of M vectors in a window."""
        return self.pattern.groups(self.shape[self.axis])

    @property
    def height(self) -> int:
        """Rows of a whole window."""
        return max(1, min(self.pattern.length, self.across))

    @property
    def of_matrix(self) -> int:
        """Windows of a matrix."""
        return -(-self.across // self.height)

    @property
    def count(self) -> int:
        """Windows of all matrices."""
        return self.rows // self.across * self.of_matrix if self.rows else 0

    def of_rows(self) -> NDArray[np.int64]:
        """The window of each row."""
        row = np.arange(self.rows)
        return row // self.across * self.of_matrix + row % self.across // self.height

    def places(self) -> NDArray[np.int64]:
        """The place of each row in the sequence of whole windows, where a cut window is filled up."""
        return self.of_rows() * self.height + np.arange(self.rows) % max(self.across, 1) % self.height

    def blocks(self) -> Iterator[Block]:
        """Consecutive blocks: whole windows of about `BLOCK` elements, or parts of a window of more than `PART`. The indices
        of a part are whole bytes. Only a last window can be cut.
        """
        height, size, m = self.height, self.shape[self.axis], self.pattern.m
        run = self.across if self.across % height else self.rows
        # Indices below 17 have 1 to 8 bits, so those of 8 groups fill bytes. Others fill bytes, and codes half a byte.
        unit = (8 if m <= 16 else 2) * m
        width = size if height * size <= PART else max(1, PART // height // unit) * unit
        for begin in range(0, self.rows, max(run, 1)):
            before = begin // self.across * self.of_matrix
            for block in row_blocks(-(-run // height), height * size):
                rows = slice(begin + block.start * height, begin + min(block.stop * height, run))
                lists = slice(before + block.start, before + block.stop)
                for start in range(0, size, width):
                    columns = slice(start, min(start + width, size))
                    yield Block(rows, columns, lists, self._part(columns.stop - start), start // m)

    def _part(self, size: int) -> Windows:
        """Windows of some groups: of an array of this size along the sparse axis."""
        return replace(self, shape=(*self.shape[: self.axis], size, *self.shape[self.axis + 1 :]))

    def tiles(self, rows: Bits) -> Bits:
        """Rows of a block as [windows, height, groups, M]; zeros past the end of a matrix or of the sparse axis."""
        count, size = rows.shape
        m = self.pattern.m
        padding = (-count % self.height, self.groups * m - size)
        if any(padding):
            rows = np.pad(rows, tuple((0, each) for each in padding))
        return rows.reshape(-1, self.height, self.groups, m)

    def start(self, group: int, row: int = 0) -> tuple[int, ...]:
        """Coordinates of a group's first element in the array. group: counted over all windows. row: of the window."""
        window, along = divmod(group, self.groups)
        matrix, within = divmod(window, self.of_matrix)
        row += matrix * self.across + within * self.height
        coordinates: list[int] = []
        for size in reversed((*self.shape[: self.axis], *self.shape[self.axis + 1 :])):
            row, coordinate = divmod(row, size)
            coordinates.insert(0, coordinate)
        coordinates.insert(self.axis, along * self.pattern.m)
        return tuple(coordinates)


def to_planes(tiles: Bits) -> Bits:
    """Tiles as [M, height, windows * groups]: entry i has element i of all vectors."""
    windows, height, groups, m = tiles.shape
    return np.ascontiguousarray(tiles.transpose(3, 1, 0, 2)).reshape(m, height, windows * groups)
