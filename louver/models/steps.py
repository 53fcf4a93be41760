"""What a rewriting of a checkpoint does with one tensor: copies it, or writes it in another form or element type."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import PIECE, CheckpointFile, StoredTensor, TensorReader, piece_shapes
from louver.formats.codes import joined_indices
from louver.formats.container import DTYPES, array_bytes
from louver.formats.dtypes import ElementType, element_type
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError
from louver.formats.schema import BitmaskForm, DenseForm, Form, SparseForm, crc32_text
from louver.formats.tensor import SparseTensor
from louver.formats.writer import Placed
from louver.models.scaled import Factors


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One weight. shape: in elements. dtype: the written element type.

    dense_bytes: dense size in that type. stored_bytes: written size, dense or compressed.
    error: relative Frobenius error, ‖w − written‖ / ‖w‖ over finite elements of the original w, both dequantized; 0 for
        a zero weight. nonfinite: infinities and NaNs of the original. negative_zeros: -0.0 that became +0.0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    dense_bytes: int
    stored_bytes: int
    error: float
    nonfinite: int = 0
    negative_zeros: int = 0

    def __post_init__(self) -> None:
        if self.dense_bytes < 0 or self.stored_bytes < 0:
            raise ValueError(f"sizes are not negative, got {self.dense_bytes} and {self.stored_bytes} bytes")
        if not self.error >= 0:
            raise ValueError(f"{self.name}: the error is a number from 0, got {self.error}: the weight may hold NaN")

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def ratio(self) -> float:
        return self.dense_bytes / self.stored_bytes if self.stored_bytes else 1.0


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

    def factor(self, factors: Factors | None) -> NDArray[np.float32] | None:
        """The factors of the part's elements, as an array of its shape; None without factors."""
        return None if factors is None else factors.at(self.rows, self.columns).reshape(self.shape)


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


@dataclass(frozen=True, slots=True)
class Source:
    """Tensors of a checkpoint's files and these files, by the tensors' names."""

    tensors: Mapping[str, StoredTensor]
    files: Mapping[str, CheckpointFile]

    @classmethod
    def of(cls, files: Iterable[CheckpointFile]) -> Self:
        by_name = {name: file for file in files for name in file.tensors}
        return cls({name: file.tensors[name] for name, file in by_name.items()}, by_name)

    @contextmanager
    def open(self, name: str) -> Generator[tuple[TensorReader, StoredTensor]]:
        """A reader of the tensor's file. Raises FormatError if the file was changed since its header was read."""
        with self.files[name].open() as reader:
            yield reader, self.tensors[name]

    def array(self, name: str) -> NDArray[Any]:
        """A whole dense tensor."""
        with self.open(name) as (reader, tensor):
            return np.asarray(reader.read(tensor))

    def checksums(self, names: Iterable[str]) -> tuple[str, ...]:
        """The CRC-32 of all stored arrays of the tensors. Reads them; raises FormatError for damage."""
        found: list[str] = []
        for name in names:
            with self.open(name) as (reader, tensor):
                found += map(crc32_text, reader.checksums(tensor))
        return tuple(found)


BLOCK = 1 << 18
"""Elements that are measured at a time, in float64."""


class Tally:
    """Sums over the pieces of one tensor.

    squares: of the original, and of its difference from what is written, over finite elements. nonfinite: infinities
    and NaNs of the original. negative_zeros: -0.0 that became +0.0.
    """

    def __init__(self) -> None:
        self.squares = np.zeros(2)
        self.nonfinite = 0
        self.negative_zeros = 0

    def add(self, before: NDArray[Any], after: NDArray[Any]) -> None:
        """Count the elements of a piece: original and written numbers of one shape."""
        before, after = before.reshape(-1), after.reshape(-1)
        for start in range(0, before.size, BLOCK):
            original, written = (x[start : start + BLOCK].astype(np.float64) for x in (before, after))
            finite = np.isfinite(original)
            self.nonfinite += original.size - int(np.count_nonzero(finite))
            original, lost = original[finite], original[finite] - written[finite]
            self.squares += original @ original, lost @ lost

    def row(self, name: str, shape: tuple[int, ...], dtype: str, sizes: tuple[int, int]) -> LayerRow:
        """The report's row. sizes: dense and stored bytes."""
        whole, lost = (float(x) for x in self.squares)
        error = (lost / whole) ** 0.5 if whole else 0.0
        return LayerRow(name, shape, dtype, *sizes, error, self.nonfinite, self.negative_zeros)


Piece: TypeAlias = "Sequence[NDArray[Any] | Placed]"
"""The next part of each stored array, or a part with its place."""


def placed(region: Region, dense: NDArray[Any]) -> Piece:
    """A region of a dense tensor as it is written."""
    return (dense if region.part is None else Placed(dense, region.rows.start, region.columns.start),)


def sparse_pieces(parts: Iterable[tuple[Region, SparseTensor]]) -> Iterator[Piece]:
    """Values and indices of the regions of a tensor, by rows. Indices of long windows wait for their last part."""
    waiting: list[SparseTensor] = []
    for region, sparse in parts:
        if region.part is None:
            yield sparse.values, sparse.indices
            continue
        row, first, size = region.part
        pattern = sparse.pattern
        waiting.append(sparse)
        values = Placed(sparse.values, row, first // pattern.m * pattern.n)
        if first + sparse.size < size:
            yield values, np.empty(0, np.uint8)
            continue
        indices = joined_indices([each.indices for each in waiting], [each.windows for each in waiting])
        waiting.clear()
        yield values, indices


class Step(Protocol):
    """What is done with one tensor. Its `repr` says all that the written bytes depend on, beside the source's bytes."""

    @property
    def form(self) -> Form:
        """The written form."""
        ...

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors that it reads beside its own."""
        ...

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        """The next part of each stored array, until all are complete."""
        ...

    def row(self, name: str, tally: Tally) -> LayerRow | None:
        """The report's row after the last piece; None for a copy."""
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies a tensor's bytes."""

    form: Form
    reads: tuple[str, ...] = ()

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        tally.negative_zeros = self.form.negative_zeros_dropped if isinstance(self.form, SparseForm) else 0
        with source.open(name) as (reader, tensor):
            yield from reader.chunks(tensor)

    def row(self, name: str, tally: Tally) -> LayerRow | None:
        return None


COMPRESSED: Final[Mapping[str, str]] = {"f32": "f16", "float64": "f16"}
"""Element types without products on a GPU, and the types of compressed weights instead."""


def convert(name: str, weight: NDArray[Any], element: ElementType) -> NDArray[Any]:
    """The weight in another element type. Raises ValueError if infinities or NaNs appear or vanish."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = weight.astype(element.numpy, copy=False)
    changed = (np.isinf(converted) != np.isinf(weight)) | (np.isnan(converted) != np.isnan(weight))
    if changed.any():
        wider = "f32" if element.name == "bf16" else "bf16"
        raise ValueError(
            f"{name!r} holds {weight[changed][0]}, which {element} cannot: use --dtype {wider}, or --exclude the tensor"
        )
    return converted


def known_element(form: DenseForm | BitmaskForm | SparseForm) -> ElementType | None:
    """The element type; None if sparse tensors cannot have it."""
    if isinstance(form, SparseForm):
        return form.dtype
    try:
        element = element_type(DTYPES[form.dtype])
    except ValueError:
        return None
    return element if element.sparse else None


def written_element(form: DenseForm, dtype: str | None, compressed: bool) -> ElementType | None:
    """The element type of a pruned weight; None for a dense one of a type that sparse tensors cannot have.

    dtype: the wanted type, or None for the own type (see `COMPRESSED`).
    """
    if dtype is not None:
        return element_type(dtype)
    known = known_element(form)
    if not compressed:
        return known
    own = DTYPES[form.dtype].name if known is None else known.name
    return element_type(COMPRESSED.get(own, own))
