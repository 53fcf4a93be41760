"""The safetensors container: reads and writes the header of a file. A file has 8 bytes with the header's length
(little-endian), a JSON header, then the arrays' bytes without gaps. docs/libraries.md says why Louver does not use the
safetensors package. Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from louver.formats.regular import FormatError, RegularFile

MAX_HEADER: Final = 100_000_000
"""Most bytes of a header: the limit of the safetensors package."""

MAX_DIMENSIONS: Final = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""Most dimensions of a NumPy array."""

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
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
"""The container's element types that NumPy holds. Arrays of any other type are bytes that a header describes."""

MAX_TYPE_NAME: Final = 32
"""Most characters of an element type's name."""

MAX_ELEMENT: Final = 64
"""Most bytes of an element of a type that NumPy does not hold."""

_TYPE_NAME: Final = re.compile(f"[A-Z][A-Z0-9_]{{0,{MAX_TYPE_NAME - 1}}}", re.ASCII)

CONVERT: Final = (
    "a file of torch.save, which can run code when it is read: convert it once, by "
    "safetensors.torch.save_file({k: v.clone() for k, v in torch.load(FILE, weights_only=True).items()}, "
    '"model.safetensors")'
)
"""What to do about a checkpoint that is no safetensors file."""

_PICKLE_STARTS: Final = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""Starts of the zip files and of the older pickles that torch.save writes."""

_NAMES: Final = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """An array of a file. dtype: the container's name, in `DTYPES` or not. start, stop: its byte range, counted from the
    end of the header. Elements of a type that is not in `DTYPES` may have less than a byte.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    def __post_init__(self) -> None:
        check_array(self.dtype, self.shape)
        if not _can_fill(self.dtype, math.prod(self.shape), self.nbytes):
            raise ValueError(f"{self.dtype} of shape {list(self.shape)} cannot fill bytes {self.start} to {self.stop}")

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file. data_start: byte offset of the first array's bytes."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    data_start: int


def check_array(dtype: str, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless a file and NumPy can hold the array, or its bytes if NumPy does not hold the type.
    Allocates nothing, also for huge sizes.
    """
    if dtype not in DTYPES and not _TYPE_NAME.fullmatch(dtype):
        raise ValueError(
            f"an element type's name is capital letters, digits and _, got {dtype!r}: the header is corrupt"
        )
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"an array has at most {MAX_DIMENSIONS} dimensions, got {len(shape)}")
    if shape and min(shape) < 0:
        raise ValueError(f"dimensions are 0 or more, got shape {list(shape)}")
    # NumPy ignores zeros when it checks whether a size is too large.
    if math.prod(filter(None, shape)) * (DTYPES[dtype].itemsize if dtype in DTYPES else 1) >= 1 << 63:
        raise ValueError(f"an array has less than 2**63 bytes, without dimensions of 0, got shape {list(shape)}")


def _can_fill(dtype: str, count: int, nbytes: int) -> bool:
    """Whether `count` elements can have so many bytes."""
    if dtype in DTYPES:
        return nbytes == count * DTYPES[dtype].itemsize
    # At least a bit an element.
    return -(-count // 8) <= nbytes <= count * MAX_ELEMENT


def check_name(name: object) -> None:
    """Raises ValueError unless a file can hold a tensor of this name."""
    if not isinstance(name, str) or not name or name == "__metadata__" or not is_text(name):
        raise ValueError(f"a tensor's name is Unicode text, not empty and not __metadata__, got {name!r}: rename it")


def check_metadata(metadata: Mapping[Any, Any], advice: str) -> None:
    """Raises ValueError, with the advice at its end, unless the metadata map text to text."""
    for key, text in metadata.items():
        if not is_text(key) or not is_text(text):
            raise ValueError(f"metadata maps Unicode text to text, got {text!r} for {key!r}: {advice}")


def is_text(x: object) -> bool:
    """Whether `x` is a str that UTF-8 can encode (no lone surrogates)."""
    return isinstance(x, str) and (x.isascii() or not any("\ud800" <= c <= "\udfff" for c in x))


def type_name(dtype: np.dtype[Any]) -> str:
    """The container's name of an element type. Raises ValueError for a type that it cannot hold."""
    name = _NAMES.get(dtype)
    if name is None:
        raise ValueError(f"a file holds elements of {', '.join(DTYPES)} (little-endian), got {dtype}: convert first")
    return name


def array_bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of an array in C order. A contiguous array is not copied."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def header_text(entries: Mapping[str, Entry], metadata: Mapping[str, str], length: int = 0) -> bytes:
    """The start of a file: 8 bytes of length, then the header, padded with spaces to a multiple of 8 bytes.

    length: minimum size in bytes, for a header that replaces a shorter one.
    """
    fields: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))} if metadata else {}
    for name, entry in entries.items():
        offsets = [entry.start, entry.stop]
        fields[name] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": offsets}
    text = json.dumps(fields, separators=(",", ":")).encode()
    text = text.ljust(max(len(text) + -len(text) % 8, length - 8))
    if len(text) > MAX_HEADER:
        raise ValueError(f"a file's header has at most {MAX_HEADER} bytes, got {len(text)}: save to several files")
    return len(text).to_bytes(8, "little") + text


def header_of(file: RegularFile) -> Header:
    """The header of an open safetensors file, checked against the file's size. Raises FormatError."""
    start = file.read(0, 8)
    # The length of a header has four zeros there.
    if start.startswith(_PICKLE_STARTS) and any(start[4:]):
        raise FormatError(f"{file.path}: {CONVERT}")
    length = int.from_bytes(file.read(0, 8), "little")
    if file.size < 8 or not 2 <= length <= min(file.size - 8, MAX_HEADER):
        raise FormatError(
            f"{file.path}: not a safetensors file, or truncated ({file.size} bytes, header of {length} announced)"
        )
    try:
        fields = json.loads(file.read(8, length).decode(), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file.path}: not a safetensors file, or a corrupt header: {error}") from error
    if not isinstance(fields, dict):
        raise FormatError(f"{file.path}: a safetensors header is a JSON object, got {type(fields).__name__}")
    fields = cast("dict[str, object]", fields)
    metadata = _metadata(fields.pop("__metadata__", {}), file.path)
    entries = {name: _entry(name, field, file.path) for name, field in fields.items()}
    _check_layout(entries, file.size - 8 - length, file.path)
    return Header(entries, metadata, 8 + length)


def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The fields of a JSON object. Raises ValueError for a repeated name."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the name {name!r} appears twice")
    return fields


def _metadata(field: object, path: str) -> dict[str, str]:
    if not isinstance(field, dict):
        raise FormatError(f"{path}: metadata is a JSON object, got {type(field).__name__}: the header is corrupt")
    metadata = cast("dict[str, str]", field)
    try:
        check_metadata(metadata, "the header is corrupt")
    except ValueError as error:
        raise FormatError(f"{path}: {error}") from error
    return metadata


def _entry(name: str, field: object, path: str) -> Entry:
    try:
        check_name(name)
        parts = cast("dict[str, Any]", field)
        start, stop = _integers(parts["data_offsets"])
        return Entry(str(parts["dtype"]), _integers(parts["shape"]), start, stop)
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{path}: the header's entry for {name!r} cannot be used: {error}") from error


def _integers(x: object) -> tuple[int, ...]:
    numbers = cast("list[int]", x)
    if type(x) is list and all(type(number) is int for number in numbers):
        return tuple(numbers)
    raise ValueError(f"a list of integers is needed, got {x!r}")


def _check_layout(entries: Mapping[str, Entry], data_bytes: int, path: str) -> None:
    """Raises FormatError unless the arrays follow each other without gap or overlap and end at the end of the file."""
    expected = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != expected:
            raise FormatError(f"{path}: {name!r} must start at data byte {expected}, got {entry.start}: corrupt header")
        expected = entry.stop
    if data_bytes != expected:
        state = "truncated" if data_bytes < expected else "followed by bytes of something else"
        raise FormatError(
            f"{path}: the header describes {expected} bytes of data, got {data_bytes}: the file is {state}"
        )
