"""Parts of a dense tensor that are pruned one by one: whole groups along any axis, whole windows, bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import PIECE, StoredTensor, TensorReader, piece_shapes
from louver.formats.container import DTYPES, array_bytes
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a tensor that is stored as a matrix [product of the other axes, last axis].

    rows, columns: of that matrix. shape: of the part as an array in the tensor's order. axis: of its groups.
    part: for some groups of long windows: the first row, counted along the sparse axis as in the sparse form, the first
    element of the rows, and their size. None for whole windows.
    """

    rows: range
    columns: range
    shape: tuple[int, ...]
    axis: int
    part: tuple[int, int, int] | None = None

    def read(self, reader: TensorReader, tensor: StoredTensor) -> NDArray[Any]:
        """The part of a dense tensor. Raises FormatError for a file that was cut short."""
        (array,) = tensor.arrays
        dtype, width = DTYPES[array.entry.dtype], tensor.form.shape[-1]
        part = np.empty((len(self.rows), len(self.columns)), dtype)
        whole = len(self.columns) == width and self.rows.step == 1
        start = reader.data_start + array.entry.start
        for row, into in ((self.rows.start, part),) if whole else zip(self.rows, part, strict=True):
            data = array_bytes(into)
            if reader.file.read_into(start + (row * width + self.columns.start) * dtype.itemsize, data) != len(data):
                raise FormatError(f"{reader.file.path}: the file ended inside {array.name!r}: it was changed")
        return part.reshape(self.shape)


def regions(shape: tuple[int, ...], axis: int, pattern: Pattern, *, by_rows: bool) -> Iterator[Region]:
    """The regions of a tensor of two axes or more, with whole groups of `pattern` along `axis` and whole windows.

    by_rows: in the order of the sparse form: rows along `axis`, the other axes in their order. Otherwise in the order in
    which a dense tensor is stored. Most regions have at most about `PIECE` elements; windows that are longer are cut into
    parts.
    """
    if axis == len(shape) - 1:
        for rows, columns, is_part in _rows(shape, axis, pattern):
            part = (rows.start, columns.start, shape[axis]) if is_part else None
            yield Region(rows, columns, (len(rows), len(columns)), 1, part)
        return
    size, middle, width = shape[axis], math.prod(shape[axis + 1 : -1]), shape[-1]
    matrices, matrix = math.prod(shape[:axis]), size * middle * width
    if matrix <= PIECE:
        step = PIECE // max(1, matrix)
        for first in range(0, matrices, step):
            count = min(step, matrices - first)
            rows = range(first * size * middle, (first + count) * size * middle)
            yield Region(rows, range(width), (count, size, middle, width), 1)
        return
    for start in range(0, matrices * size, size):
        if by_rows:
            for column in range(middle):
                for across, along, is_part in _rows((width, size), 1, pattern):
                    first = (start + along.start) * middle + column
                    rows = range(first, first + len(along) * middle, middle)
                    row = (start // size * middle + column) * width + across.start
                    part = (row, along.start, size) if is_part else None
                    yield Region(rows, across, (len(along), len(across)), 0, part)
        else:
            step = max(1, PIECE // (pattern.m * middle * width)) * pattern.m
            for first in range(0, size, step):
                count = min(step, size - first)
                rows = range((start + first) * middle, (start + first + count) * middle)
                yield Region(rows, range(width), (count, middle, width), 0)


def _rows(shape: tuple[int, ...], axis: int, pattern: Pattern) -> Iterator[tuple[range, range, bool]]:
    """Rows and columns of the parts of a tensor along its last axis, and whether they have some groups of windows only."""
    row = column = 0
    # The indices of so many groups are whole bytes: 1 to 8 bits, or codes of half a byte.
    unit = (8 if pattern.m <= 16 else 2) * pattern.m
    for rows, columns in piece_shapes(shape, axis, 2 * pattern.m, pattern.length):
        width = max(1, PIECE // rows // unit) * unit
        if pattern.length > 1 and rows * columns > PIECE and width < columns:
            for start in range(0, columns, width):
                yield range(row, row + rows), range(start, min(start + width, columns)), True
            row += rows
            continue
        yield range(row, row + rows), range(column, column + columns), False
        column += columns
        if column == shape[axis]:
            row, column = row + rows, 0
