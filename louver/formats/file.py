"""The portable file: sparse and dense tensors in safetensors, as docs/format.md describes."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from louver.formats.container import FormatError, array_bytes, read, type_name, write
from louver.formats.dtypes import element_type
from louver.formats.gated import GatedTensor
from louver.formats.pattern import Pattern
from louver.formats.tensor import SparseTensor

VERSION: Final = 1
"""The schema's version; readers refuse any other."""

KEY: Final = "louver"
"""The metadata key that holds the schema's JSON."""

Tensor: TypeAlias = "SparseTensor | NDArray[Any]"

_FIELDS: Final = ("pattern", "dtype", "shape", "axis", "negative_zeros_dropped")


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write sparse tensors, and dense arrays beside them, to a safetensors file; whole or not at all.

    metadata: text to store beside Louver's own, such as {"format": "pt"}; the key "louver" is taken.
    Raises ValueError for two tensors that need the same stored name, and for what a file cannot hold.
    """
    metadata = dict(metadata or {})
    if KEY in metadata:
        raise ValueError(f"the metadata key {KEY!r} is Louver's own: leave it out")
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, GatedTensor):
            raise ValueError(
                f"{name} is a gated pair: save its parts() under two names, and call louver.gated after loading"
            )
        for stored, array in _parts(name, tensor).items():
            if stored in arrays:
                raise ValueError(f"two tensors need the stored name {stored!r}: rename one")
            arrays[stored] = array
    described = {name: _describe(tensor) for name, tensor in tensors.items() if isinstance(tensor, SparseTensor)}
    schema = {
        "version": VERSION,
        "tensors": described,
        "tensors_crc32": _described_crc32(described),
        "crc32": {name: _crc32(array) for name, array in arrays.items()},
    }
    write(path, arrays, metadata | {KEY: json.dumps(schema, sort_keys=True)})


def load(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name: those that Louver compressed as `SparseTensor`, all others as arrays.

    Any safetensors file may be read; one that Louver did not write has dense arrays only.
    Raises FormatError (a ValueError) for a file that is truncated, corrupt or of an unknown version.
    """
    arrays, metadata = read(path)
    tensors: dict[str, Tensor] = {}
    if KEY in metadata:
        try:
            tensors |= _from_schema(_parse(metadata[KEY]), arrays)
        except ValueError as error:
            raise FormatError(f"{os.fspath(path)}: {error}") from error
    return tensors | arrays


def stored_names(name: str) -> tuple[str, str]:
    """The names under which a file holds a sparse tensor's values and indices."""
    return f"{name}.values", f"{name}.indices"


def _parts(name: str, tensor: Tensor) -> dict[str, NDArray[Any]]:
    if isinstance(tensor, SparseTensor):
        values, indices = stored_names(name)
        return {values: tensor.values, indices: tensor.indices}
    return {name: np.asarray(tensor)}


def _describe(tensor: SparseTensor) -> dict[str, Any]:
    return {
        "pattern": str(tensor.pattern),
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "axis": tensor.axis,
        "negative_zeros_dropped": tensor.negative_zeros_dropped,
    }


def _crc32(array: NDArray[Any]) -> str:
    """Over type and shape as well: a damaged header may still describe as many bytes."""
    header = f"{type_name(array)} {list(array.shape)} ".encode()
    return f"{zlib.crc32(array_bytes(array), zlib.crc32(header)):08x}"


def _described_crc32(described: Mapping[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(described, sort_keys=True).encode()):08x}"


def _parse(text: str) -> dict[str, Any]:
    """The schema's JSON, of the version that is understood here."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the metadata under {KEY!r} is not JSON, it is corrupt: {error}") from error
    if not isinstance(schema, dict):
        raise ValueError(f"the metadata under {KEY!r} must be a JSON object, it is corrupt")
    schema = cast("dict[str, Any]", schema)
    version = schema.get("version")
    if version != VERSION or type(version) is not int:
        raise ValueError(
            f"this Louver reads files of schema version {VERSION}, got version {version!r}: "
            "use the Louver that wrote the file, or a newer one"
        )
    for field in ("tensors", "crc32"):
        if not isinstance(schema.get(field), dict):
            raise ValueError(f"the metadata under {KEY!r} must have an object {field!r}: it is corrupt")
    return schema


def _from_schema(schema: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The sparse tensors; their parts are taken out of `arrays`."""
    if schema.get("tensors_crc32") != _described_crc32(schema["tensors"]):
        raise ValueError("the descriptions of the sparse tensors do not have their checksum: the file is corrupt")
    for name, array in arrays.items():
        if schema["crc32"].get(name) != _crc32(array):
            raise ValueError(f"the bytes of {name!r} do not have the checksum that was saved: the file is corrupt")
    tensors: dict[str, Tensor] = {}
    for name, fields in schema["tensors"].items():
        try:
            tensors[name] = _sparse_tensor(name, fields, arrays)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"sparse tensor {name!r} cannot be read: {error}") from error
    twice = sorted(set(tensors) & set(arrays))
    if twice:
        raise ValueError(f"a tensor is either sparse or dense, got both for {', '.join(twice)}: the file is corrupt")
    return tensors


def _sparse_tensor(name: str, fields: object, arrays: dict[str, NDArray[Any]]) -> SparseTensor:
    if not isinstance(fields, dict) or not set(_FIELDS) <= set(cast("dict[str, object]", fields)):
        raise ValueError(f"its description needs {', '.join(_FIELDS)}")
    described = cast("dict[str, Any]", fields)
    names = stored_names(name)
    missing = [stored for stored in names if stored not in arrays]
    if missing:
        raise ValueError(f"the file holds no {' and no '.join(missing)}")
    values, indices = (arrays.pop(stored) for stored in names)
    numbers = [*described["shape"], described["axis"], described["negative_zeros_dropped"]]
    if any(type(number) is not int for number in numbers):
        raise ValueError(f"shape, axis and negative_zeros_dropped are integers, got {numbers}")
    if values.ndim != 2:
        raise ValueError(f"values have the shape [rows, kept], got {list(values.shape)}")
    tensor = SparseTensor(
        Pattern.parse(described["pattern"]),
        element_type(described["dtype"]),
        tuple(described["shape"]),
        described["axis"],
        values,
        indices,
        described["negative_zeros_dropped"],
    )
    tensor.validate()
    return tensor
