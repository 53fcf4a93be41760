"""Arrays of any shape as rows along the sparse axis, and rows as groups, a cache-sized block at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type, raw_bits
from louver.formats.given import integer
from louver.formats.pattern import Pattern

Bits = NDArray[Any]
"""Raw bits of elements, as unsigned integers of their size."""

BLOCK: Final = 1 << 17
"""Elements that are worked on at a time, so that the dozen intermediate arrays stay in the cache."""


def sparse_operand(array: ArrayLike) -> tuple[NDArray[Any], ElementType]:
    """The array and its element type; refuses scalars, masked arrays and types that a sparse tensor cannot have.

    A PyTorch tensor may be on any device, and of types that NumPy does not know.
    """
    of_torch = _is_torch_tensor(array)
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            "a sparse tensor is made of an array whose elements all have values, got a masked one: call filled(…)"
        )
    operand: Any = array if of_torch else np.asarray(array)
    if operand.dtype == object:
        raise TypeError(f"a sparse tensor is made of an array of numbers, got {type(array).__name__}: convert it first")
    if operand.ndim == 0:
        raise ValueError("a sparse tensor has at least one dimension, got a scalar: give an array")
    element = element_type(operand.dtype, among=SPARSE_TYPES)
    return (_on_host(operand, element) if of_torch else operand), element


_GPU_MEMORY: Final = (2, 13)
"""DLPack's device types of CUDA: its own memory, and memory that moves."""


def on_gpu(array: object) -> Any:
    """The module with this room's functions for arrays on a GPU, by the package's own name, since this room may not import it;
    None for any other array.
    """
    if isinstance(array, np.ndarray):
        return None
    if _is_torch_tensor(array):
        there = bool(getattr(array, "is_cuda", False))
    else:
        where = getattr(array, "__dlpack_device__", None)
        there = hasattr(array, "__cuda_array_interface__") or (where is not None and int(where()[0]) in _GPU_MEMORY)
    if not there:
        return None
    import louver

    return louver.streamed


def _is_torch_tensor(array: object) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _on_host(tensor: Any, element: ElementType) -> NDArray[Any]:
    """A PyTorch tensor as an array, by its bytes."""
    torch: Any = sys.modules["torch"]
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().view(element.numpy)


def normal_axis(axis: object, ndim: int) -> int:
    """The axis, an integer, counted from 0. Raises TypeError for anything else, ValueError when the array has no such axis."""
    number = integer(axis, f"the sparse axis is an integer from {-ndim} to {ndim - 1}")
    if not -ndim <= number < ndim:
        raise ValueError(
            f"the sparse axis of an array with {ndim} dimensions is from {-ndim} to {ndim - 1}, got {number}"
        )
    return number % ndim


def to_rows(array: NDArray[Any], axis: int) -> Bits:
    """Raw bits [rows, size] with the axis last and the other axes, in their order, flattened to rows."""
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
    rows = 1
    for i, size in enumerate(shape):
        rows *= 1 if i == axis else size
    return rows


def row_blocks(rows: int, row_size: int) -> Iterator[slice]:
    """Consecutive slices of rows, about `BLOCK` elements each, at least one row; none where rows have no elements."""
    step = max(1, BLOCK // max(1, row_size))
    for start in range(0, rows if row_size else 0, step):
        yield slice(start, min(start + step, rows))


def to_groups(rows: Bits, pattern: Pattern) -> Bits:
    """Rows [r, size] as groups [r * groups, M]; a last group that is cut off is filled with zeros."""
    count, size = rows.shape
    padding = pattern.groups(size) * pattern.m - size
    if padding:
        rows = np.pad(rows, ((0, 0), (0, padding)))
    return rows.reshape(count * pattern.groups(size), pattern.m)


def group_start(group: int, shape: tuple[int, ...], axis: int, pattern: Pattern) -> tuple[int, ...]:
    """Coordinates, in an array of `shape`, of the first element of a group counted over all rows."""
    row, along = divmod(group, pattern.groups(shape[axis]))
    coordinates: list[int] = []
    for size in reversed((*shape[:axis], *shape[axis + 1 :])):
        row, coordinate = divmod(row, size)
        coordinates.insert(0, coordinate)
    coordinates.insert(axis, along * pattern.m)
    return tuple(coordinates)
