"""The sparse tensor: stored values and indices in natural row-major order, and the way back to dense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.codes import decode, index_bytes
from louver.formats.dtypes import ElementType, element_type, raw_bits
from louver.formats.pattern import Pattern
from louver.formats.rows import from_rows, row_blocks, row_count

ROW_ALIGNMENT: Final = 16
"""Bytes of which a row pitch of values is a multiple, so that bulk copies read the rows in place."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class SparseTensor:
    """A structured-sparse tensor in its portable form.

    shape: of the dense tensor. axis: the sparse axis, counted from 0. rows: the other axes, in their order, flattened.
    values: element type `dtype`, [rows, kept]; contiguous along a row, row pitch rounded up to 16 bytes.
    indices: uint8 [rows, index bytes], contiguous; see `louver.formats.codes`.
    negative_zeros_dropped: how many -0.0 of the dense tensor became +0.0 because their group had no free slot.
    A sparse axis that is not a multiple of M ends in a group that is filled up with zeros.
    Compared and hashed by identity; both arrays are made read-only, so that what is derived from them can be kept.
    Raises ValueError for parts that do not fit together; `validate` looks at the contents as well.
    """

    pattern: Pattern
    dtype: ElementType
    shape: tuple[int, ...]
    axis: int
    values: NDArray[Any]
    indices: NDArray[np.uint8]
    negative_zeros_dropped: int = 0

    def __post_init__(self) -> None:
        Pattern.of_elements(self.pattern)
        if not self.dtype.sparse:
            raise ValueError(f"{self.dtype} is a type of results or of numbers, not of sparse tensors")
        if not 0 <= self.axis < len(self.shape):
            raise ValueError(
                f"the sparse axis of shape {self.shape} is from 0 to {len(self.shape) - 1}, got {self.axis}"
            )
        if any(size < 0 for size in self.shape):
            raise ValueError(f"dimensions are 0 or more, got shape {self.shape}")
        if self.negative_zeros_dropped < 0:
            raise ValueError(f"negative_zeros_dropped is a count, got {self.negative_zeros_dropped}")
        self._check_values()
        self._check_indices()
        object.__setattr__(self, "values", _read_only(self.values))
        object.__setattr__(self, "indices", _read_only(self.indices))

    def _check_values(self) -> None:
        if element_type(self.values.dtype).numpy != self.dtype.numpy:
            raise ValueError(f"values of {self.dtype} are {self.dtype.numpy}, got {self.values.dtype}")
        if self.values.shape != (self.rows, self.kept):
            raise ValueError(
                f"{self.pattern} of shape {self.shape} along axis {self.axis} keeps values of shape "
                f"{(self.rows, self.kept)}, got {self.values.shape}"
            )
        strides = (row_pitch(self.kept, self.dtype), self.dtype.bytes)
        if self.values.size and self.values.strides != strides:
            raise ValueError(
                f"rows of values are contiguous and start the next multiple of {ROW_ALIGNMENT} bytes apart, so with "
                f"strides {strides}, got {self.values.strides}: use aligned_rows"
            )

    def _check_indices(self) -> None:
        expected = (self.rows, index_bytes(self.pattern, self.groups))
        if self.indices.dtype != np.uint8 or self.indices.shape != expected or not self.indices.flags.c_contiguous:
            raise ValueError(
                f"indices are contiguous uint8 of shape {expected}, got {self.indices.dtype} of shape "
                f"{self.indices.shape} and strides {self.indices.strides}"
            )

    @property
    def size(self) -> int:
        """Elements along the sparse axis of the dense tensor."""
        return self.shape[self.axis]

    @property
    def rows(self) -> int:
        """Rows along the sparse axis: the product of the other dimensions."""
        return row_count(self.shape, self.axis)

    @property
    def groups(self) -> int:
        """Groups of a row, the last one filled up."""
        return self.pattern.groups(self.size)

    @property
    def kept(self) -> int:
        """Stored values of a row: N for each group."""
        return self.groups * self.pattern.n

    @property
    def nbytes(self) -> int:
        """Bytes in memory: values with their row pitch, and indices."""
        return self.rows * row_pitch(self.kept, self.dtype) + self.indices.nbytes

    def dense(self) -> NDArray[Any]:
        """The dense array, bit for bit what was compressed (but for the -0.0 counted): `shape`, `dtype`, C order.

        Raises ValueError when the indices are not legal.
        """
        out = np.empty((self.rows, self.size), self.dtype.bits_dtype)
        for block in row_blocks(self.rows, self.size):
            out[block] = self._expand(block)[:, : self.size]
        return from_rows(out, self.shape, self.axis, self.dtype)

    def validate(self) -> None:
        """Raises ValueError unless every code is legal and only +0.0 is stored past the end of the sparse axis."""
        for block in row_blocks(self.rows, self.size):
            outside = self._expand(block)[:, self.size :].any(axis=1)
            if outside.any():
                raise ValueError(
                    f"only +0.0 may be stored past the end of the sparse axis, got another value in row "
                    f"{block.start + int(np.argmax(outside))}: the values or the indices are corrupt"
                )

    def _expand(self, block: slice) -> NDArray[Any]:
        """Raw bits of some dense rows, the last group filled up: [rows of the block, groups * M]."""
        count = block.stop - block.start
        full = np.zeros((count * self.groups, self.pattern.m), self.dtype.bits_dtype)
        full[decode(self.indices[block], self.groups, self.pattern)] = raw_bits(self.values)[block].ravel()
        return full.reshape(count, self.groups * self.pattern.m)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copying and pickling an array loses its row pitch.
        values = np.ascontiguousarray(self.values)
        parts = (self.pattern, self.dtype, self.shape, self.axis, values, self.indices, self.negative_zeros_dropped)
        return _rebuild, parts

    def __repr__(self) -> str:
        return f"SparseTensor({self.pattern} {self.dtype} {list(self.shape)}, axis {self.axis}, {self.nbytes:,} bytes)"


def row_pitch(kept: int, element: ElementType) -> int:
    """Bytes from one row of `kept` values to the next."""
    return -(-kept * element.bytes // ROW_ALIGNMENT) * ROW_ALIGNMENT


def empty_rows(rows: int, kept: int, element: ElementType) -> NDArray[Any]:
    """Zeros [rows, kept] of an element type, with the row pitch that a `SparseTensor` asks for."""
    whole = np.zeros((rows, row_pitch(kept, element) // element.bytes), element.bits_dtype)
    return whole.view(element.numpy)[:, :kept]


def aligned_rows(values: NDArray[Any]) -> NDArray[Any]:
    """The values [rows, kept] with the row pitch that a `SparseTensor` asks for: the array itself, or a copy."""
    element = element_type(values.dtype)
    rows, kept = values.shape
    if values.strides == (row_pitch(kept, element), element.bytes):
        return values
    copy = empty_rows(rows, kept, element)
    raw_bits(copy)[:] = raw_bits(values)
    return copy


def _rebuild(
    pattern: Pattern,
    dtype: ElementType,
    shape: tuple[int, ...],
    axis: int,
    values: NDArray[Any],
    indices: NDArray[np.uint8],
    negative_zeros_dropped: int,
) -> SparseTensor:
    return SparseTensor(pattern, dtype, shape, axis, aligned_rows(values), indices, negative_zeros_dropped)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
