"""The safetensors container: named arrays and text metadata in one file, written atomically.

Eight bytes with the header's length (little-endian), a JSON header, then the arrays' bytes without gaps. Read and written
here because the safetensors package's NumPy side has no 8-bit floating types.
Source: https://github.com/huggingface/safetensors, section "Format".
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

MAX_HEADER: Final = 100_000_000
"""Bytes; the limit that the safetensors package sets for readers."""

DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
"""The container's element types and their NumPy dtypes."""

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


class FormatError(ValueError):
    """A file that is not what it should be; the message names the file."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One array of a file. dtype: the container's name. start, stop: its bytes, counted from the end of the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"the element type is one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"dimensions are 0 or more, got shape {list(self.shape)}")
        if self.stop - self.start != math.prod(self.shape) * DTYPES[self.dtype].itemsize:
            raise ValueError(f"{self.dtype} of shape {list(self.shape)} cannot fill bytes {self.start} to {self.stop}")


@dataclass(frozen=True, slots=True)
class Header:
    """What a file holds. data_start: byte offset of the first array's bytes."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of a safetensors file, checked against the file's size. Raises FormatError, or OSError."""
    with Path(path).open("rb") as file:
        return _read_header(file, str(path))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """All arrays by name, and the metadata, of a safetensors file. Raises FormatError, or OSError."""
    with Path(path).open("rb") as file:
        header = _read_header(file, str(path))
        return {name: _read_array(file, header, name, str(path)) for name in header.entries}, header.metadata


def write(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata to a safetensors file, whole or not at all.

    The bytes go to a new file beside `path`, which takes its place when they have reached the disk.
    Raises ValueError for a name or an element type that the container cannot hold.
    """
    path = Path(path)
    # Wide elements first: then every array starts at a multiple of its element's size.
    names = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header = _header_bytes(names, arrays, metadata)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with partial.open("xb") as file:
            file.write(header)
            for name in names:
                file.write(array_bytes(arrays[name]))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_folder(path.parent)


def type_name(array: NDArray[Any]) -> str:
    """The container's name of an array's element type. Raises ValueError for a type that it cannot hold."""
    name = _NAMES.get(array.dtype)
    if name is None:
        raise ValueError(
            f"a file holds elements of {', '.join(DTYPES)} (little-endian), got {array.dtype}: convert first"
        )
    return name


def array_bytes(array: NDArray[Any]) -> memoryview:
    """An array's bytes in C order; the array's own memory where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _header_bytes(names: Sequence[str], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    fields: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    for name in names:
        array = arrays[name]
        if not name or name == "__metadata__":
            raise ValueError(f"a tensor's name is not empty and not __metadata__, got {name!r}: rename it")
        if array.dtype not in _NAMES:
            raise ValueError(
                f"a file holds {', '.join(DTYPES)} (little-endian), got {array.dtype} for {name!r}: convert"
            )
        shape = list(array.shape)
        fields[name] = {
            "dtype": type_name(array),
            "shape": shape,
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(f"a file's header has at most {MAX_HEADER} bytes, got {len(text)}: save to several files")
    return len(text).to_bytes(8, "little") + text


def _read_header(file: BufferedReader, path: str) -> Header:
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(size - 8, MAX_HEADER):
        raise FormatError(f"{path}: not a safetensors file, or truncated ({size} bytes, header of {length} announced)")
    try:
        fields = json.loads(file.read(length), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not a safetensors file, or a corrupt header: {error}") from error
    if not isinstance(fields, dict):
        raise FormatError(f"{path}: a safetensors header is a JSON object, got {type(fields).__name__}")
    fields = cast("dict[str, object]", fields)
    metadata = _metadata(fields.pop("__metadata__", {}), path)
    entries = {name: _entry(name, field, path) for name, field in fields.items()}
    _check_layout(entries, size - 8 - length, path)
    return Header(entries, metadata, 8 + length)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name stands twice")
    return fields


def _metadata(field: object, path: str) -> dict[str, str]:
    if isinstance(field, dict) and all(isinstance(value, str) for value in cast("dict[str, object]", field).values()):
        return cast("dict[str, str]", field)
    raise FormatError(f"{path}: safetensors metadata maps text to text: the header is corrupt")


def _entry(name: str, field: object, path: str) -> Entry:
    try:
        parts = cast("dict[str, Any]", field)
        start, stop = (_integer(offset) for offset in parts["data_offsets"])
        return Entry(str(parts["dtype"]), tuple(_integer(size) for size in parts["shape"]), start, stop)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: the header's entry for {name!r} cannot be used: {error}") from error


def _integer(x: object) -> int:
    if type(x) is int:
        return x
    raise ValueError(f"an integer is needed, got {x!r}")


def _check_layout(entries: Mapping[str, Entry], data_bytes: int, path: str) -> None:
    """Arrays follow each other without gap or overlap and end where the file ends."""
    expected = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != expected:
            raise FormatError(f"{path}: {name!r} must start at data byte {expected}, got {entry.start}: corrupt header")
        expected = entry.stop
    if data_bytes != expected:
        state = "truncated" if data_bytes < expected else "followed by bytes that are not its own"
        raise FormatError(
            f"{path}: the header describes {expected} bytes of data, got {data_bytes}: the file is {state}"
        )


def _read_array(file: BufferedReader, header: Header, name: str, path: str) -> NDArray[Any]:
    entry = header.entries[name]
    array = np.empty(entry.shape, DTYPES[entry.dtype])
    file.seek(header.data_start + entry.start)
    if file.readinto(array_bytes(array)) != array.nbytes:
        raise FormatError(f"{path}: the file ended inside {name!r}: it is truncated, or was changed while it was read")
    return array


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; only POSIX systems let a folder be opened for that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
