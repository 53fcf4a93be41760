"""Checkpoints: named tensors in a safetensors file, or in the files of an index, read in pieces. Opening reads only
headers. A read in pieces uses bounded memory.
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from louver.formats.bitmask import Start, check_undescribed, dense_pieces, found_forms, loaded
from louver.formats.container import DTYPES, Entry, array_bytes, header_of
from louver.formats.index import Index, find, read_index, shard_paths
from louver.formats.pattern import Pattern
from louver.formats.regular import FormatError, RegularFile
from louver.formats.rows import Windows
from louver.formats.schema import (
    BITMASK_PARTS,
    KEY,
    MARK,
    BitmaskForm,
    DenseForm,
    Form,
    RawForm,
    Schema,
    SparseForm,
    Tensor,
    array_form,
    crc32_text,
    start_crc32,
)
from louver.formats.tensor import SparseTensor, frozen

PIECE: Final = 1 << 22
"""Elements of a piece."""

NAMED: Final = 8
"""Most names in a note."""

START: Final = 1 << 12
"""Most bytes that opening a file reads of an array, to tell what it is."""

_BYTES: Final = np.dtype(np.uint8)
"""How arrays of a type that NumPy does not hold are copied."""


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array of a file. crc32: its checksum in the metadata; None in a file that Louver did not write."""

    name: str
    entry: Entry
    crc32: str | None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file. arrays: the array of a dense tensor or of raw bytes; values and indices of a sparse tensor."""

    name: str
    form: Form
    arrays: tuple[StoredArray, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return sum(array.entry.nbytes for array in self.arrays)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A safetensors file of a checkpoint.

    tensors: in the order of their data. metadata: without Louver's keys. identity: size, time of the last change of the
        content, inode, time of the last change of the state (which no program can set back), and a hash of the header.
        A file of the same identity has the same content.
    """

    path: Path
    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]
    identity: tuple[int, int, int, int, str]
    data_start: int

    @contextmanager
    def open(self) -> Generator[TensorReader]:
        """Open the file to read tensors. Raises FormatError if it was changed since its header was read."""
        with RegularFile.open(self.path) as file:
            # The state may change without the content: by a new link, or by other rights.
            if _seen(file)[:3] != self.identity[:3]:
                raise FormatError(f"{self.path}: the file was changed while it was read: start again")
            yield TensorReader(file, self.data_start)

    def here(self) -> CheckpointFile:
        """The same file by the path and the inode that it has in this process. A network file system may number files
        otherwise on each machine. Raises FormatError if the file has another size, time or header, and OSError.
        """
        with RegularFile.open(self.path) as file:
            now = _identity(file, self.data_start)
        if (now[:2], now[-1]) != (self.identity[:2], self.identity[-1]):
            raise FormatError(f"{self.path}: the file was changed while it was read: start again")
        return replace(self, identity=now)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint's files. path: of the index or of the only file. index: None for a file without an index."""

    path: Path
    files: tuple[CheckpointFile, ...]
    index: Index | None

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        return {name: tensor for file in self.files for name, tensor in file.tensors.items()}

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Names of the tensors that their file holds and the index does not list."""
        if self.index is None:
            return ()
        listed = self.index.weight_map.keys()
        return tuple(
            name for name, tensor in self.tensors.items() if listed.isdisjoint(array.name for array in tensor.arrays)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about the files as they are."""
        notes: list[str] = []
        if self.unlisted:
            notes.append(
                f"{self.path.name} does not list {listed([*map(repr, self.unlisted)])}, which its files hold: they are copied and stay "
                "unlisted"
            )
        names = self.tensors.keys()
        stems = [name.removesuffix(BITMASK_PARTS.bits) for name in names if name.endswith(BITMASK_PARTS.bits)]
        split = [stem for stem in stems if stem + BITMASK_PARTS.values in names]
        if split:
            notes.append(
                f"bitmask and values of {listed([*map(repr, split)])} are not beside a shape in one file: they stay as they are stored"
            )
        return tuple(notes)

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of all files, without Louver's keys. Of different values for a key the first file's wins."""
        return {key: text for file in reversed(self.files) for key, text in file.metadata.items()}


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the headers of a safetensors file, of the files of an index, or of the only checkpoint in a folder. Raises
    FormatError for damage and for an index that lists what its files lack, and OSError.
    """
    if not os.fspath(path):
        raise ValueError("a checkpoint has a path, got an empty text: name a file or a folder (is a variable unset?)")
    found = find(Path(path))
    with _no_collection():
        with RegularFile.open(found) as file:
            index = read_index(file)
            if index is None:
                return Checkpoint(found, (_open(file, found),), None)
        files: list[CheckpointFile] = []
        for name, shard in shard_paths(found, index).items():
            with RegularFile.open(shard) as file:
                files.append(_open(file, shard))
            _check_shard(found, index, name, files[-1])
    _check_names(found, files)
    return Checkpoint(found, tuple(files), index)


@contextmanager
def _no_collection() -> Generator[None]:
    """Pause garbage collection. Headers give many live objects, and scanning them often takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class TensorReader:
    """Reads tensors of an open file, whole or in pieces, and checks their checksums."""

    file: RegularFile
    data_start: int

    def read(self, tensor: StoredTensor) -> Tensor:
        """A whole tensor. A bitmask gives a sparse tensor if its element type may be one's and its rows hold 2:4, else a
        dense array. Raises FormatError for damage and for a type that NumPy does not hold, MemoryError for a tensor
        that does not fit in memory.
        """
        form = self._readable(tensor)
        try:
            if isinstance(form, BitmaskForm):
                (dense,) = self._of_bitmask(tensor, form, [form.shape])
                return loaded(form, dense)
            arrays = [_ArrayReader(self, tensor, array).whole() for array in tensor.arrays]
        except MemoryError as error:
            need = f"{self.file.path}: {tensor.name!r} needs {tensor.nbytes} bytes of memory"
            raise MemoryError(f"{need}: `louver prune` and `louver inspect` read it in pieces") from error
        if isinstance(form, DenseForm):
            return arrays[0]
        return self._sparse(tensor, form.shape, form.axis, arrays)

    def pieces(self, tensor: StoredTensor, unit: Pattern) -> Iterator[Tensor]:
        """A tensor's rows along its sparse or last axis, in order, as matrices of at most about `PIECE` elements. A
        piece has whole windows of `unit` and of the tensor's own pattern, from one or more matrices. For element
        patterns it can be part of a row, at a multiple of both M (below `PIECE`) and of a byte of indices. Pieces of a
        bitmask are dense.
        """
        form = self._readable(tensor)
        axis, width, length = len(form.shape) - 1, 2 * unit.m, unit.length
        if isinstance(form, BitmaskForm):
            # Each piece begins with a byte of bits.
            shapes = piece_shapes(form.shape, axis, math.lcm(width, 8), length)
            yield from self._of_bitmask(tensor, form, shapes)
            return
        readers = [_ArrayReader(self, tensor, array) for array in tensor.arrays]
        if isinstance(form, SparseForm):
            axis, length = form.axis, math.lcm(length, form.pattern.length)
            width = math.lcm(width, 2 * form.pattern.m)
        for rows, columns in piece_shapes(form.shape, axis, width, length):
            if isinstance(form, DenseForm):
                yield readers[0].take((rows, columns))
                continue
            piece = SparseForm(form.pattern, form.dtype, (rows, columns), 1)
            shapes = [array.shape for array in piece.arrays("").values()]
            parts = [reader.take(shape) for reader, shape in zip(readers, shapes, strict=True)]
            yield self._sparse(tensor, (rows, columns), 1, parts)
        for reader in readers:
            reader.finish()

    def chunks(self, tensor: StoredTensor) -> Iterator[tuple[NDArray[Any], ...]]:
        """The stored arrays as flat parts of bounded size: a part of each array at a time, empty after the array's end."""
        readers = [_ArrayReader(self, tensor, array) for array in tensor.arrays]
        while any(reader.left for reader in readers):
            yield tuple(reader.take((min(PIECE, reader.left),)) for reader in readers)
        for reader in readers:
            reader.finish()

    def verify(self, tensor: StoredTensor) -> None:
        """Compare a tensor's checksums, if the file has them. Raises FormatError."""
        if any(array.crc32 is not None for array in tensor.arrays):
            self.checksums(tensor)

    def checksums(self, tensor: StoredTensor) -> tuple[int, ...]:
        """The CRC-32 of each stored array, as in the metadata. Reads the tensor. Raises FormatError for damage."""
        found = [start_crc32(array.entry) for array in tensor.arrays]
        for parts in self.chunks(tensor):
            found = [zlib.crc32(array_bytes(part), crc) for part, crc in zip(parts, found, strict=True)]
        return tuple(found)

    def _readable(self, tensor: StoredTensor) -> DenseForm | SparseForm | BitmaskForm:
        """The tensor's form. Raises FormatError if NumPy does not hold its elements."""
        if isinstance(tensor.form, RawForm):
            raise FormatError(
                f"{self.file.path}: {tensor.name!r} has elements of type {tensor.form.dtype}, of which NumPy has no arrays: "
                "`louver inspect` lists the file, and `louver prune` copies such a tensor"
            )
        return tensor.form

    def _of_bitmask(
        self, tensor: StoredTensor, form: BitmaskForm, shapes: Iterable[tuple[int, ...]]
    ) -> Iterator[NDArray[Any]]:
        try:
            yield from dense_pieces(form, [_ArrayReader(self, tensor, array) for array in tensor.arrays], shapes)
        except FormatError:
            raise
        except ValueError as error:
            raise FormatError(f"{self.file.path}: {tensor.name!r} cannot be read: {error}") from error

    def _sparse(
        self, tensor: StoredTensor, shape: tuple[int, ...], axis: int, arrays: Sequence[NDArray[Any]]
    ) -> SparseTensor:
        form = tensor.form
        assert isinstance(form, SparseForm)
        values, indices = arrays
        dropped = form.negative_zeros_dropped
        try:
            sparse = SparseTensor(
                form.pattern, form.dtype, shape, axis, frozen(values.view(form.dtype.numpy)), frozen(indices), dropped
            )
            sparse.validate()
        except ValueError as error:
            raise FormatError(f"{self.file.path}: sparse tensor {tensor.name!r} cannot be read: {error}") from error
        return sparse


class _ArrayReader:
    """Reads an array's elements in order, and compares the checksum at the end. left: elements not read yet."""

    def __init__(self, reader: TensorReader, tensor: StoredTensor, array: StoredArray) -> None:
        self.file = reader.file
        self.tensor = tensor
        self.array = array
        self.dtype = DTYPES.get(array.entry.dtype, _BYTES)
        self.left = array.entry.nbytes // self.dtype.itemsize
        self.stop = reader.data_start + array.entry.stop
        self.crc = None if array.crc32 is None else start_crc32(array.entry)

    def take(self, shape: tuple[int, ...]) -> NDArray[Any]:
        """The next elements as a new array."""
        part = np.empty(shape, self.dtype)
        data = array_bytes(part)
        if self.file.read_into(self.stop - self.left * self.dtype.itemsize, data) != len(data):
            raise FormatError(
                f"{self.file.path}: the file ended inside {self.array.name!r}: it is truncated, or was changed while it was read"
            )
        if self.crc is not None:
            self.crc = zlib.crc32(data, self.crc)
        self.left -= part.size
        return part

    def finish(self) -> None:
        """Raises FormatError unless the elements read have the stored checksum, if there is one."""
        if self.crc is not None and self.array.crc32 != crc32_text(self.crc):
            raise FormatError(
                f"{self.file.path}: the bytes of {self.array.name!r} do not have the checksum that was saved: "
                "the file is corrupt"
            )

    def whole(self) -> NDArray[Any]:
        array = self.take(self.array.entry.shape)
        self.finish()
        return array


def piece_shapes(shape: tuple[int, ...], axis: int, unit: int, length: int) -> Iterator[tuple[int, int]]:
    """Rows and columns of consecutive pieces of an array that is read as rows along `axis` (-1: a scalar). Parts of a
    row start at multiples of `unit`. Pieces of several rows have whole windows of `length` rows.
    """
    columns = shape[axis] if shape else 1
    rows = math.prod(shape) // columns if columns else 0
    if columns > PIECE and length == 1:
        width = PIECE // unit * unit
        for _ in range(rows):
            yield from ((1, min(width, columns - start)) for start in range(0, columns, width))
        return
    # Windows end with their matrix.
    across = rows if length == 1 else Windows(shape, axis, Pattern(1, 1, length)).across
    run = across if across % length else rows
    step = max(1, PIECE // max(1, columns * length)) * length
    # A cut window stays with a whole window: `indices` may have as many rows.
    end = max(1, run // length) * length
    for _ in range(0, rows, max(1, run)):
        yield from ((step if start + step < end else run - start, columns) for start in range(0, end, step))


def _open(file: RegularFile, path: Path) -> CheckpointFile:
    header = header_of(file)
    try:
        schema = Schema.of_metadata(header.metadata)

        def start(entry: Entry) -> bytes:
            return file.read(header.data_start + entry.start, min(entry.nbytes, START))

        tensors = _tensors(header.entries, schema, start)
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from error
    metadata = {key: text for key, text in header.metadata.items() if key not in (KEY, MARK)}
    return CheckpointFile(path, tensors, metadata, _identity(file, header.data_start), header.data_start)


def _identity(file: RegularFile, data_start: int) -> tuple[int, int, int, int, str]:
    return *_seen(file), hashlib.sha256(file.read(0, data_start)).hexdigest()


def _seen(file: RegularFile) -> tuple[int, int, int, int]:
    status = file.status
    return file.size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns


def _tensors(entries: Mapping[str, Entry], schema: Schema | None, start: Start) -> dict[str, StoredTensor]:
    """The tensors of the entries in the order of their data. Raises ValueError where the schema, or the shape that a
    bitmask names, does not match.
    """
    crc32: Mapping[str, str] = {} if schema is None else schema.crc32
    left: dict[str, StoredArray] = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        if schema is not None and name not in crc32:
            raise ValueError(f"{name!r} has no checksum in the metadata: the file is corrupt")
        left[name] = StoredArray(name, entry, crc32.get(name))
    if schema is None:
        check_undescribed(entries, start)
    absent = [name for name in crc32 if name not in left]
    if absent:
        raise ValueError(f"the metadata list a checksum for {absent[0]!r}, which the file does not hold: it is corrupt")
    tensors: dict[str, StoredTensor] = {}
    described = dict[str, SparseForm | BitmaskForm](schema.tensors if schema else {})
    for name, form in found_forms(entries, start).items():
        if name in described:
            raise ValueError(f"{name!r} is stored both as values with indices and as a bitmask: the file is corrupt")
        described[name] = form
    for name, form in described.items():
        try:
            tensors[name] = StoredTensor(name, form, _parts(form, name, left))
        except ValueError as error:
            raise ValueError(f"sparse tensor {name!r} cannot be read: {error}") from error
    for name, array in left.items():
        if name in tensors:
            raise ValueError(f"a tensor is either sparse or dense, got both for {name!r}: the file is corrupt")
        tensors[name] = StoredTensor(name, array_form(array.entry), (array,))
    return dict(sorted(tensors.items(), key=lambda item: item[1].arrays[0].entry.start))


def _parts(form: SparseForm | BitmaskForm, name: str, arrays: dict[str, StoredArray]) -> tuple[StoredArray, ...]:
    """The arrays of a sparse tensor, removed from `arrays`. Raises ValueError for arrays that differ from the form."""
    wanted = form.arrays(name)
    missing = [stored for stored in wanted if stored not in arrays]
    if missing:
        raise ValueError(f"the file holds no {' and no '.join(missing)}")
    parts = tuple(arrays.pop(stored) for stored in wanted)
    for part, array in zip(parts, wanted.values(), strict=True):
        if array_form(part.entry) != array:
            raise ValueError(
                f"{form} has {part.name} of {array.dtype} {list(array.shape)}, got {part.entry.dtype} "
                f"{list(part.entry.shape)}"
            )
    return parts


def _check_shard(path: Path, index: Index, name: str, file: CheckpointFile) -> None:
    """Raises FormatError unless a file holds the arrays that the index lists for it. It may hold others."""
    mapped = {array for array, shard in index.weight_map.items() if shard == name}
    held = {array.name for tensor in file.tensors.values() for array in tensor.arrays}
    for array in sorted(mapped - held):
        raise FormatError(f"{path}: the index says that {name} holds {array!r}, which it does not")


def _check_names(path: Path, files: Sequence[CheckpointFile]) -> None:
    """Raises FormatError for a tensor name that two files hold, in one sparse and in the other dense."""
    seen: dict[str, Path] = {}
    for file in files:
        for name in file.tensors:
            other = seen.setdefault(name, file.path)
            if other != file.path:
                raise FormatError(f"{path}: both {other.name} and {file.path.name} hold a tensor {name!r}")
