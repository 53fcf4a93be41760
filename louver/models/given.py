"""Tensors of a checkpoint that were computed apart, in files of their own, and that a run writes in the place of its source's."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import CheckpointFile, StoredTensor, TensorReader, open_checkpoint
from louver.formats.regular import FormatError
from louver.formats.schema import Form
from louver.models.layer_row import LayerRow
from louver.models.steps import Piece, Source, Tally


@dataclass(frozen=True, slots=True)
class Given:
    """A dense tensor in a file that Louver wrote, under the name that it has in the checkpoint. crc32: of its bytes."""

    crc32: str
    file: CheckpointFile = field(repr=False)
    tensor: StoredTensor = field(repr=False)

    @contextmanager
    def open(self) -> Generator[tuple[TensorReader, StoredTensor]]:
        """A reader of the file, on any machine. Raises FormatError if the file was changed since."""
        with self.file.here().open() as reader:
            yield reader, self.tensor

    def array(self) -> NDArray[Any]:
        """The whole tensor. Raises FormatError for damage."""
        with self.open() as (reader, tensor):
            return np.asarray(reader.read(tensor))


def found(paths: Iterable[Path]) -> dict[str, Given]:
    """The dense tensors of some files by name. Of a name in two files the later one counts. Raises FormatError for a file
    that Louver did not write.
    """
    given: dict[str, Given] = {}
    for path in paths:
        for file in open_checkpoint(path).files:
            for name, tensor in file.tensors.items():
                crc32 = tensor.arrays[0].crc32
                if crc32 is None:
                    raise FormatError(f"{path}: {name!r} has no checksum: Louver did not write this file")
                given[name] = Given(crc32, file, tensor)
    return given


@dataclass(frozen=True, slots=True)
class Replacement:
    """Writes a given tensor in the place of the source's, in its form."""

    form: Form
    given: Given
    reads: tuple[str, ...] = ()

    def pieces(self, source: Source, name: str, tally: Tally) -> Iterator[Piece]:
        with self.given.open() as (reader, tensor):
            yield from reader.chunks(tensor)

    def row(self, name: str, tally: Tally) -> LayerRow | None:
        return None
