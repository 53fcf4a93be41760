"""Safetensors files written and read byte by byte, without Louver: what tests damage, and what they compare with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from louver.formats.container import DTYPES, type_name

Arrays = Mapping[str, np.ndarray[Any, Any]]


def raw_file(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file of a header (bytes, or JSON values) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str = "U8", shape: Any = (4,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def write_container(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> Path:
    """A file of arrays in the order in which they are given, with any metadata."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    start = 0
    for name, array in arrays.items():
        header[name] = entry(type_name(array.dtype), array.shape, (start, start + array.nbytes))
        start += array.nbytes
    return raw_file(path, header, b"".join(array.tobytes() for array in arrays.values()))


def read_container(path: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """Arrays and metadata of a good file."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    metadata = header.pop("__metadata__", {})
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, field in header.items():
        first, last = (start + offset for offset in field["data_offsets"])
        arrays[name] = np.frombuffer(content[first:last], DTYPES[field["dtype"]]).reshape(field["shape"]).copy()
    return arrays, metadata
