"""What a rewriting of a checkpoint does with one tensor: copies it, or writes it in another form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from louver.formats.schema import Form, SparseForm
from louver.models.layer_row import LayerRow
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

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Sequence[NDArray[Any]]]:
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

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Sequence[NDArray[Any]]]:
        tally.negative_zeros = self.form.negative_zeros_dropped if isinstance(self.form, SparseForm) else 0
        with source.open(name) as (reader, tensor):
            yield from reader.chunks(tensor)

    def row(self, name: str, tally: Tally) -> LayerRow | None:
        return None
