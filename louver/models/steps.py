"""What a rewriting of a checkpoint does with one tensor: copies it, or writes it in another form or element type."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import CheckpointFile, StoredTensor, TensorReader
from louver.formats.codes import joined_indices
from louver.formats.container import DTYPES
from louver.formats.dtypes import ElementType, element_type
from louver.formats.schema import BitmaskForm, DenseForm, Form, SparseForm, crc32_text
from louver.formats.tensor import SparseTensor
from louver.formats.writer import Placed
from louver.models.layer_row import LayerRow
from louver.models.regions import Region


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
