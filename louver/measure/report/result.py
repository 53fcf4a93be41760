"""A command's result: values for programs, tables and lines for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from louver.measure.report.table import Table, paragraph

SCHEMA = 1
"""The version of every JSON document that a command prints."""


@dataclass(frozen=True, slots=True)
class Result:
    """kind: the command. data: JSON values by the keys of docs/json.md. shown: the same as text. ok: all checks passed."""

    kind: str
    data: Mapping[str, Any]
    shown: Sequence[Table | str]
    ok: bool = True

    def json(self) -> str:
        """One JSON document in ASCII. Infinity and NaN become null, because JSON does not have them."""
        document = json.dumps(_finite({"schema": SCHEMA, "kind": self.kind, **self.data}), indent=1)
        # JSON escapes all other control characters.
        return document.replace("\x7f", "\\u007f")

    def lines(self, width: int | None = None, encoding: str = "utf-8") -> Iterator[str]:
        """The text in lines of at most `width` cells; None: of any length. An empty line ends a table."""
        for index, part in enumerate(self.shown):
            if index and isinstance(self.shown[index - 1], Table):
                yield ""
            yield from paragraph(part, width, encoding) if isinstance(part, str) else part.lines(width, encoding)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[object]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
