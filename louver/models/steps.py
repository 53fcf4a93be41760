"""What a rewriting of a checkpoint does with one tensor: copies it, or writes it in another form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.formats.codes import joined_indices
from louver.formats.schema import Form, SparseForm
from louver.formats.tensor import SparseTensor
from louver.formats.writer import Placed
from louver.models.layer_row import LayerRow
from louver.models.regions import Region
from louver.models.source import Source

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
