"""Louver's part of a file's metadata: the sparse tensors, and the checksum of every stored array. See docs/files.md."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.codes import index_bytes
from louver.formats.container import DTYPES, Entry, type_name
from louver.formats.dtypes import ElementType, element_type
from louver.formats.gated import GatedTensor
from louver.formats.pattern import Pattern
from louver.formats.rows import Windows
from louver.formats.tensor import SparseTensor
from louver.formats.torch_tensors import detached, is_torch_tensor, numpy_dtype

VERSION: Final = 1
"""The schema's version. Readers reject any other."""

KEY: Final = "louver"
"""The metadata key that holds the schema's JSON."""

MARK: Final = "louver_crc32"
"""The metadata key with the CRC-32 of the JSON. Its presence also tells that the JSON must be there."""

Tensor: TypeAlias = "SparseTensor | NDArray[Any]"

_FIELDS: Final = ("pattern", "dtype", "shape", "axis", "negative_zeros_dropped")

NO_CRC: Final = "0" * 8
"""A placeholder of the length of a checksum."""


@dataclass(frozen=True, slots=True)
class DenseForm:
    """A dense tensor without data. dtype: the container's name of the element type."""

    dtype: str
    shape: tuple[int, ...]

    def arrays(self, name: str) -> dict[str, ArrayForm]:
        return {name: self}

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class RawForm:
    """An array of a type that NumPy does not hold, without data: `nbytes` bytes, which are copied but never read.

    dtype: the file's name of the element type, such as "F4". shape: in elements, which may have less than a byte.
    """

    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    def arrays(self, name: str) -> dict[str, ArrayForm]:
        return {name: self}

    @property
    def itemsize(self) -> int:
        """Bytes of the units in which the data are aligned: of an element, if that is a whole power of two, else 1."""
        count = math.prod(self.shape)
        size, rest = divmod(self.nbytes, count) if count else (1, 0)
        return size if not rest and size.bit_count() == 1 else 1


ArrayForm: TypeAlias = DenseForm | RawForm
"""The form of one stored array."""


def array_form(entry: Entry) -> ArrayForm:
    """The form of a stored array."""
    if entry.dtype in DTYPES:
        return DenseForm(entry.dtype, entry.shape)
    return RawForm(entry.dtype, entry.shape, entry.nbytes)


@dataclass(frozen=True, slots=True)
class SparseForm:
    """A sparse tensor without data. The fields are those of `SparseTensor`."""

    pattern: Pattern
    dtype: ElementType
    shape: tuple[int, ...]
    axis: int
    negative_zeros_dropped: int = 0

    def __post_init__(self) -> None:
        numbers = [*self.shape, self.axis, self.negative_zeros_dropped]
        if any(type(number) is not int for number in numbers):
            raise ValueError(f"shape, axis and negative_zeros_dropped are integers, got {numbers}")
        if not 0 <= self.axis < len(self.shape):
            raise ValueError(f"the sparse axis is from 0 to {len(self.shape) - 1}, got {self.axis}")
        if min(*self.shape, self.negative_zeros_dropped) < 0:
            raise ValueError(f"dimensions and counts are 0 or more, got shape {list(self.shape)} and {numbers[-1]}")
        if not self.dtype.sparse:
            raise ValueError(f"{self.dtype} is a type of results or of numbers, not of sparse tensors")

    def arrays(self, name: str) -> dict[str, ArrayForm]:
        """The stored arrays by name: values and indices."""
        windows = Windows(self.shape, self.axis, self.pattern)
        values, indices = stored_names(name)
        element = type_name(self.dtype.numpy) if self.dtype.numpy in DTYPES.values() else "U8"
        return {
            values: DenseForm(element, (windows.rows, windows.groups * self.pattern.n)),
            indices: DenseForm("U8", (windows.count, index_bytes(self.pattern, windows.groups, windows.height))),
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the stored arrays."""
        return sum(array.nbytes for array in self.arrays("").values())

    def fields(self) -> dict[str, Any]:
        return {
            "pattern": str(self.pattern),
            "dtype": self.dtype.name,
            "shape": list(self.shape),
            "axis": self.axis,
            "negative_zeros_dropped": self.negative_zeros_dropped,
        }

    def __str__(self) -> str:
        return f"{self.pattern} {self.dtype} of shape {list(self.shape)} along axis {self.axis}"

    @classmethod
    def of_fields(cls, fields: object) -> SparseForm:
        """The inverse of `fields`. Raises ValueError or TypeError for other content."""
        if not isinstance(fields, dict) or not set(_FIELDS) <= set(cast("dict[str, object]", fields)):
            raise ValueError(f"its description needs {', '.join(_FIELDS)}")
        pattern, dtype, shape, axis, dropped = (cast("dict[str, Any]", fields)[field] for field in _FIELDS)
        if type(shape) is not list:
            raise ValueError(f"its shape is a list, got {shape!r}")
        return cls(Pattern.parse(pattern), element_type(dtype), tuple(cast("list[int]", shape)), axis, dropped)


WEIGHT: Final = ".weight"
"""The end of the names of tensors that a bitmask can hold. Its arrays have other ends instead."""


@dataclass(frozen=True, slots=True)
class _BitmaskParts:
    """The ends of the names of a bitmask's arrays."""

    values: str = ".compressed"
    bits: str = ".bitmask"
    shape: str = ".shape"
    offsets: str = ".row_offsets"


BITMASK_PARTS: Final = _BitmaskParts()


@dataclass(frozen=True, slots=True)
class BitmaskForm:
    """A weight in a form of compressed-tensors, without data: values, a bit for each element, and the shape. See
    `louver.formats.bitmask`.

    dtype: the container's name of the element type. shape: of the dense weight, [rows, columns].
    kept: values of `sparse-bitmask`; None for `sparse-24-bitmask`, which keeps half of the elements.
    """

    dtype: str
    shape: tuple[int, ...]
    kept: int | None = None

    def __post_init__(self) -> None:
        rows, columns = self.shape
        if min(self.shape) < 0:
            raise ValueError(f"dimensions are 0 or more, got shape {list(self.shape)}")
        if self.kept is None and columns % 2:
            raise ValueError(f"rows of sparse-24-bitmask keep half of their elements, got {columns} columns")
        if self.kept is not None and not 0 <= self.kept <= rows * columns:
            raise ValueError(f"a weight of shape {list(self.shape)} cannot keep {self.kept} values")

    def arrays(self, name: str) -> dict[str, ArrayForm]:
        """The stored arrays by name: values, bits, shape, and of `sparse-bitmask` each row's first value."""
        rows, columns = self.shape
        stem, names = name.removesuffix(WEIGHT), BITMASK_PARTS
        bits = {stem + names.bits: DenseForm("U8", (rows, -(-columns // 8)))}
        if self.kept is None:
            values, shape = DenseForm(self.dtype, (rows, columns // 2)), DenseForm("I64", (2, 1))
            return {stem + names.values: values, **bits, stem + names.shape: shape}
        values, shape, offsets = DenseForm(self.dtype, (self.kept,)), DenseForm("I64", (2,)), DenseForm("I64", (rows,))
        return {stem + names.values: values, **bits, stem + names.shape: shape, stem + names.offsets: offsets}

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays("").values())

    def __str__(self) -> str:
        kind = "sparse-24-bitmask" if self.kept is None else "sparse-bitmask"
        return f"{kind} {self.dtype} of shape {list(self.shape)}"


Form: TypeAlias = DenseForm | RawForm | SparseForm | BitmaskForm


@dataclass(frozen=True, slots=True)
class Schema:
    """A file's metadata. tensors: the sparse tensors by name. crc32: of each stored array by its stored name."""

    tensors: Mapping[str, SparseForm]
    crc32: Mapping[str, str]

    def metadata(self) -> dict[str, str]:
        described = {name: form.fields() for name, form in self.tensors.items()}
        schema = {
            "version": VERSION,
            "tensors": described,
            "tensors_crc32": crc32_of_json(described),
            "crc32": dict(self.crc32),
        }
        text = json.dumps(schema, sort_keys=True)
        return {KEY: text, MARK: _crc32_of_text(text)}

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, str]) -> Schema | None:
        """The inverse of `metadata`. None for a file that Louver did not write. Raises ValueError for damage."""
        if KEY not in metadata:
            if MARK in metadata:
                raise ValueError(f"the metadata have {MARK!r} but no {KEY!r}: the file is corrupt")
            return None
        schema = _json_object(metadata[KEY])
        version = schema.get("version")
        if version != VERSION or type(version) is not int:
            raise ValueError(
                f"this Louver reads files of schema version {VERSION}, got version {version!r}: "
                "use the Louver that wrote the file, or a newer one"
            )
        if metadata.get(MARK, _crc32_of_text(metadata[KEY])) != _crc32_of_text(metadata[KEY]):
            raise ValueError(f"the metadata under {KEY!r} do not have their checksum: the file is corrupt")
        for field in ("tensors", "crc32"):
            if not isinstance(schema.get(field), dict):
                raise ValueError(f"the metadata under {KEY!r} must have an object {field!r}: it is corrupt")
        if schema.get("tensors_crc32") != crc32_of_json(schema["tensors"]):
            raise ValueError("the descriptions of the sparse tensors do not have their checksum: the file is corrupt")
        tensors: dict[str, SparseForm] = {}
        for name, fields in schema["tensors"].items():
            try:
                tensors[name] = SparseForm.of_fields(fields)
            except (TypeError, ValueError) as error:
                raise ValueError(f"sparse tensor {name!r} cannot be read: {error}") from error
        return cls(tensors, schema["crc32"])


def stored_names(name: str) -> tuple[str, str]:
    """The stored names of a sparse tensor's values and indices."""
    return f"{name}.values", f"{name}.indices"


def form_of(name: str, tensor: Tensor) -> Form:
    """The form of a tensor. Raises ValueError for a tensor that a file cannot hold."""
    if isinstance(tensor, GatedTensor):
        raise ValueError(
            f"{name} is a gated pair: save its parts() under two names, and call louver.gated after loading"
        )
    if isinstance(tensor, SparseTensor):
        return SparseForm(tensor.pattern, tensor.dtype, tensor.shape, tensor.axis, tensor.negative_zeros_dropped)
    try:
        if is_torch_tensor(tensor):
            return DenseForm(type_name(numpy_dtype(detached(tensor))), tuple(tensor.shape))
        array = np.asarray(tensor)
        return DenseForm(type_name(array.dtype), array.shape)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name!r} cannot be saved: {error}") from error


def start_crc32(entry: Entry) -> int:
    """The checksum before an array's bytes. It covers type and shape, since a damaged header may keep the byte count."""
    return zlib.crc32(f"{entry.dtype} {list(entry.shape)} ".encode())


def crc32_text(crc: int) -> str:
    """A checksum as text for the metadata."""
    return f"{crc:08x}"


def _crc32_of_text(text: str) -> str:
    return crc32_text(zlib.crc32(text.encode()))


def crc32_of_json(x: object) -> str:
    """The checksum of a JSON value: ASCII, sorted keys, separators ", " and ": "."""
    return _crc32_of_text(json.dumps(x, sort_keys=True))


def _json_object(text: str) -> dict[str, Any]:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the metadata under {KEY!r} is not JSON, it is corrupt: {error}") from error
    if not isinstance(schema, dict):
        raise ValueError(f"the metadata under {KEY!r} must be a JSON object, it is corrupt")
    return cast("dict[str, Any]", schema)
