"""Writes a safetensors file: arrays in pieces, then the header with their checksums. The unfinished file has another
name in the folder of its target, so that no reader takes it for complete.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from typing import Any

from numpy.typing import NDArray

from louver.formats.checkpoint import PIECE
from louver.formats.container import Entry, array_bytes, check_metadata, check_name, header_text
from louver.formats.regular import Target, write_all
from louver.formats.schema import NO_CRC, ArrayForm, Form, Schema, SparseForm, crc32_text, start_crc32


@dataclass(frozen=True, slots=True)
class Placed:
    """A part [rows, columns] of a stored matrix. row, column: of its first element in the matrix."""

    data: NDArray[Any]
    row: int
    column: int


class FileWriter:
    """Writes the tensors of a file in any order, then the header.

    entries: the place of each stored array. crc32: the checksums of the complete arrays.
    """

    def __init__(self, part: FileIO, target: Target, forms: Mapping[str, Form], metadata: Mapping[str, str]) -> None:
        self.target = target
        self.entries = arranged(forms)
        self.crc32: dict[str, str] = {}
        self._arrays = {name: tuple(form.arrays(name)) for name, form in forms.items()}
        self._part = part
        self._metadata = metadata
        # The counts are not known yet; a count of all elements has the longest text.
        widest = {name: with_dropped(form, math.prod(form.shape)) for name, form in forms.items()}
        self._data_start = len(self._header(widest, dict.fromkeys(self.entries, NO_CRC)))
        stop = max((entry.stop for entry in self.entries.values()), default=0)
        with self._naming("the file"):
            part.truncate(self._data_start + stop)

    def write(self, name: str, pieces: Iterable[Sequence[NDArray[Any] | Placed]]) -> None:
        """Write a tensor. Each piece has the next part of each of its arrays, or a part of a matrix with its place;
        together they have all elements.
        """
        stored = self._arrays[name]
        entries = [self.entries[array] for array in stored]
        places = [self._data_start + entry.start for entry in entries]
        checksums = [start_crc32(entry) for entry in entries]
        scattered = set[int]()
        for piece in pieces:
            for i, array in enumerate(piece):
                if isinstance(array, Placed):
                    scattered.add(i)
                    self._write_rows(name, array, entries[i])
                    places[i] += array.data.nbytes
                    continue
                data = array_bytes(array)
                with self._naming(repr(name)):
                    write_all(self._part, places[i], data)
                places[i] += len(data)
                checksums[i] = zlib.crc32(data, checksums[i])
        for i, (array, entry) in enumerate(zip(stored, entries, strict=True)):
            assert places[i] == self._data_start + entry.stop, f"{array} is not complete"
            self.crc32[array] = self._checksum(entry) if i in scattered else crc32_text(checksums[i])

    def _write_rows(self, name: str, part: Placed, entry: Entry) -> None:
        size = part.data.itemsize
        first = self._data_start + entry.start + part.column * size
        with self._naming(repr(name)):
            for number, row in enumerate(part.data, part.row):
                write_all(self._part, first + number * entry.shape[-1] * size, array_bytes(row))

    def has(self, name: str, checksums: Sequence[str]) -> bool:
        """Whether the file already holds the tensor with these checksums of its arrays. Then it need not be written."""
        stored = self._arrays[name]
        if [self._checksum(self.entries[array]) for array in stored] != list(checksums):
            return False
        self.crc32.update(zip(stored, checksums, strict=True))
        return True

    def checksums(self, name: str) -> tuple[str, ...]:
        return tuple([self.crc32[array] for array in self._arrays[name]])

    def seal(self, forms: Mapping[str, Form]) -> None:
        """Write the header and sync the file to the disk. forms: the forms of the constructor with the final counts."""
        header = self._header(forms, {array: self.crc32[array] for array in self.entries}, self._data_start)
        with self._naming("the header"):
            write_all(self._part, 0, memoryview(header))
            self.target.adopt(self._part)

    def _header(self, forms: Mapping[str, Form], crc32: Mapping[str, str], length: int = 0) -> bytes:
        sparse = {name: form for name, form in forms.items() if isinstance(form, SparseForm)}
        return header_text(self.entries, {**self._metadata, **Schema(sparse, crc32).metadata()}, length)

    def _checksum(self, entry: Entry) -> str:
        crc = start_crc32(entry)
        self._part.seek(self._data_start + entry.start)
        left = entry.nbytes
        while left and (data := self._part.read(min(left, PIECE))):
            crc, left = zlib.crc32(data, crc), left - len(data)
        return crc32_text(crc)

    @contextmanager
    def _naming(self, what: str) -> Generator[None]:
        """Add the file and the item being written to an error of the operating system."""
        try:
            yield
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(
                error.errno, f"{error.strerror or error} while writing {what}", str(self.target.path)
            ) from error


@contextmanager
def writing(
    target: Target, token: str, forms: Mapping[str, Form], metadata: Mapping[str, str]
) -> Generator[FileWriter]:
    """A writer of the target's part, which keeps its contents. Raises ValueError for names and metadata that a file
    cannot hold, before it writes.
    """
    check_metadata(metadata, "convert it with str()")
    arranged(forms)
    with target.open_part(token) as part:
        yield FileWriter(part, target, forms, metadata)


def arranged(forms: Mapping[str, Form]) -> dict[str, Entry]:
    """The place of each stored array. Raises ValueError for names that a file cannot hold, or that two tensors need."""
    arrays: dict[str, ArrayForm] = {}
    for name, form in forms.items():
        check_name(name)
        for stored, array in form.arrays(name).items():
            if stored in arrays:
                raise ValueError(f"two tensors need the stored name {stored!r}: rename one")
            arrays[stored] = array
    entries: dict[str, Entry] = {}
    start = 0
    # Wide elements come first, so that every array starts at a multiple of its element size.
    for name in sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)):
        stop = start + arrays[name].nbytes
        entries[name] = Entry(arrays[name].dtype, arrays[name].shape, start, stop)
        start = stop
    return entries


def with_dropped(form: Form, count: int) -> Form:
    """A form with the number of negative zeros that were dropped, which a sparse one keeps."""
    return replace(form, negative_zeros_dropped=count) if isinstance(form, SparseForm) else form
