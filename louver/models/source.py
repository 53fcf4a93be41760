"""A checkpoint that is read tensor by tensor, from whichever of its files holds the tensor."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from louver.formats.checkpoint import CheckpointFile, StoredTensor, TensorReader
from louver.formats.schema import crc32_text


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
