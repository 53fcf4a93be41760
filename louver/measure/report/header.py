"""The header that all records share, and the reader of record files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

SCHEMA = 1
"""The version of every record's schema."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Header:
    """versions: by name, including the driver and ptxas. protocol: how the times were taken."""

    device: str
    versions: Mapping[str, str]
    protocol: str

    @property
    def foot(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.device}; {versions}. {self.protocol}"


def header_of(data: Mapping[str, Any], *kinds: str) -> tuple[str, dict[str, str], str]:
    """The values of a record's header. Raises ValueError for other kinds, and KeyError or TypeError for other data."""
    if data["schema"] != SCHEMA or data["kind"] not in kinds:
        wanted = " or ".join(map(repr, kinds))
        raise ValueError(f"expected schema {SCHEMA} and kind {wanted}, got {data['schema']} and {data['kind']!r}")
    versions = {str(name): str(version) for name, version in data["versions"].items()}
    return str(data["device"]), versions, str(data["protocol"])


def read_record(path: Path, kind: str, make: Callable[[Mapping[str, Any]], T]) -> T:
    """The result of `make` for a file's JSON values. kind: of the record, and the module of this package with its
    schema.

    Raises ValueError with the file's name and the broken rule.
    """
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(f"a record is a JSON object, got {type(data).__name__}")
        return make(cast("dict[str, Any]", data))
    except KeyError as error:
        raise ValueError(
            f"{path.name}: a {kind} record needs {error}: see louver/measure/report/{kind}.py for the schema"
        ) from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path.name}: not a {kind} record: {error}") from error
