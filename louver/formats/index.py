"""The index of a sharded checkpoint in the format of Hugging Face's libraries: the file of each array. `{"metadata":
{"total_size": BYTES}, "weight_map": {ARRAY: FILE}}`; the files are in the folder of the index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from louver.formats.container import CONVERT, check_name, is_text, without_repeats
from louver.formats.regular import FormatError, RegularFile, check_regular
from louver.formats.schema import MARK, crc32_of_json

MAX_INDEX: Final = 100_000_000
"""Most bytes of an index: the limit of headers."""

SUFFIX: Final = ".safetensors.index.json"


PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt")
"""Ends of the names of PyTorch's own files."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index. metadata: any JSON object. weight_map: the file name of each stored array."""

    metadata: Mapping[str, Any]
    weight_map: Mapping[str, str]

    def __post_init__(self) -> None:
        if not self.weight_map:
            raise ValueError("an index names at least one tensor, got an empty weight_map")
        for name, file in self.weight_map.items():
            check_name(name)
            if not is_file_name(file):
                raise ValueError(f"an index names files beside it, without folders, got {file!r} for tensor {name!r}")

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(self.weight_map.values()))

    def text(self) -> str:
        metadata = {**self.metadata, MARK: self.checksum()}
        return json.dumps({"metadata": metadata, "weight_map": dict(sorted(self.weight_map.items()))}, indent=2) + "\n"

    def checksum(self) -> str:
        """The CRC-32 of the map."""
        return crc32_of_json(self.weight_map)


def is_file_name(x: object) -> bool:
    """Whether `x` is the name of a file in the same folder, on any operating system."""
    return isinstance(x, str) and is_text(x) and x not in ("", ".", "..") and not set(x) & set("/\\:\0")


def read_index(file: RegularFile) -> Index | None:
    """The index in a file, or None for a file that is not JSON, such as a safetensors file. Raises FormatError."""
    # A safetensors file starts with a length below 2**32 in 8 bytes, so its fifth byte is 0. JSON text has no 0 byte.
    start = file.read(0, 8)
    if b"\0" in start or not start.lstrip().startswith(b"{"):
        return None
    if file.size > MAX_INDEX:
        raise FormatError(f"{file.path}: an index has at most {MAX_INDEX} bytes, got {file.size}")
    try:
        fields = json.loads(file.read(0, file.size).decode(), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file.path}: not an index, or a corrupt one: {error}") from error
    weight_map, metadata = fields.get("weight_map"), fields.get("metadata", {})
    if not isinstance(weight_map, dict) or not isinstance(metadata, dict):
        raise FormatError(f"{file.path}: an index has objects weight_map and metadata: it is corrupt, or other JSON")
    try:
        index = Index(cast("dict[str, Any]", metadata), cast("dict[str, str]", weight_map))
    except ValueError as error:
        raise FormatError(f"{file.path}: {error}") from error
    if index.metadata.get(MARK, index.checksum()) != index.checksum():
        raise FormatError(f"{file.path}: weight_map does not have its checksum: the index is corrupt")
    return index


def shard_paths(index_path: Path, index: Index) -> dict[str, Path]:
    """The path of each file that an index names.

    With symlinks followed, a file is in the folder of the index or of its real file (as in huggingface_hub's cache).
    Raises FormatError for a file elsewhere, for other than regular files, and for two names of one file.
    """
    homes = {Path(os.path.realpath(index_path.parent)), Path(os.path.realpath(index_path)).parent}
    seen: dict[tuple[int, int], str] = {}
    paths: dict[str, Path] = {}
    for name in index.files:
        path = index_path.parent / name
        if Path(os.path.realpath(path)).parent not in homes:
            raise FormatError(f"{index_path}: {name!r} leads out of the index's folder, to {os.path.realpath(path)}")
        status = path.stat()
        check_regular(str(path), status)
        other = seen.setdefault((status.st_dev, status.st_ino), name)
        if other != name:
            raise FormatError(f"{index_path}: {name!r} and {other!r} are one file: the index is corrupt")
        paths[name] = path
    return paths


def checkpoints(folder: Path) -> list[Path]:
    """The indexes and safetensors files in a folder, without hidden ones. Empty if there is no such folder."""
    found = (*folder.glob(f"*{SUFFIX}"), *folder.glob("*.safetensors"))
    return sorted(path for path in found if not path.name.startswith("."))


def find(path: Path) -> Path:
    """The path itself, or the only checkpoint in a folder. Raises FormatError for a folder with none or several."""
    if not path.is_dir():
        return path
    found = checkpoints(path)
    found = [entry for entry in found if entry.name.endswith(SUFFIX)] or found
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(entry.name for entry in found[:8])
        raise FormatError(f"{path}: a directory with several checkpoints ({names}): name one of them")
    pickles = sorted(entry.name for entry in path.iterdir() if entry.suffix in PICKLES and entry.is_file())
    if pickles:
        raise FormatError(f"{path / pickles[0]}: {CONVERT}")
    raise FormatError(f"{path}: a directory without an index (*{SUFFIX}) or a safetensors file: name a file")
