"""Resolves source locations in MLIR text before it is parsed. xDSL rejects location names that are defined later. MLIR
prints `loc(#loc5)` after each operation and `#loc5 = loc("kernels.py":14:22)` at the end. Each reference is replaced by
the place in the user's file, and the definitions are removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

Frame: TypeAlias = tuple[str, int, int]
"""A place in a source file: path, line and column."""

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|#[\w.]+|\w+|[():\[\],<>]|$)')
_USE = re.compile(r'"(?:[^"\\]|\\.)*"|\s*\bloc\(')
_LIBRARY = re.compile(r"(^|/)triton/(language|experimental)/")


def resolve_locations(text: str) -> str:
    """`text` with every location as the innermost place outside Triton's own files. Locations without a place are
    removed. Raises ValueError for a location that MLIR does not print.
    """
    aliases: dict[str, str] = {}
    lines: list[str] = []
    for line in text.splitlines():
        found = _ALIAS.match(line)
        if found:
            aliases[found[1]] = found[2]
        else:
            lines.append(line)
    known: dict[str, str] = {}
    return "\n".join(_resolve_line(line, aliases, known) for line in lines) + "\n"


def _resolve_line(line: str, aliases: dict[str, str], known: dict[str, str]) -> str:
    parts: list[str] = []
    start = 0
    while found := _USE.search(line, start):
        parts.append(line[start : found.start()])
        start = found.end()
        if not found[0].endswith("loc("):
            parts.append(found[0])
            continue
        end = _closing(line, start)
        body = line[start:end]
        if body not in known:
            known[body] = _written(_Reader(body, aliases).frames())
        parts.append(known[body])
        start = end + 1
    return "".join([*parts, line[start:]])


def _closing(line: str, start: int) -> int:
    """The position of the parenthesis that closes the one before `start`."""
    depth = 1
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', line[start:]):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return start + found.start()
    raise ValueError(f"a location ends with a parenthesis, got {line[start:]!r}")


def _written(frames: list[Frame]) -> str:
    """The text of a location: the user's innermost frame, or Triton's if there is no other."""
    own = [frame for frame in frames if not _LIBRARY.search(frame[0])] or frames
    if not own:
        return ""
    path, line, column = own[0]
    return f' loc("{path}":{line}:{column})'


@dataclass(slots=True)
class _Reader:
    """Reads a location. position: of the next character."""

    text: str
    aliases: dict[str, str]
    position: int = 0

    def frames(self) -> list[Frame]:
        """Places in source files, innermost first."""
        token = self._next()
        if token.startswith("#"):
            if token not in self.aliases:
                raise ValueError(f"a location's name is defined in the same text, got {token}")
            return _Reader(self.aliases[token], self.aliases).frames()
        if token.startswith('"'):
            return self._named(token[1:-1])
        match token:
            case "unknown":
                return []
            case "callsite":
                self._expect("(")
                callee = self.frames()
                self._expect("at")
                caller = self.frames()
                self._expect(")")
                return callee + caller
            case "fused":
                return self._fused()
            case _:
                raise ValueError(f"a location is a file, a name, callsite, fused or unknown, got {self.text!r}")

    def _named(self, name: str) -> list[Frame]:
        """`"file":line:column`, `"file":line:column to :line:column`, or `"name"(location)`."""
        if self._skip("("):
            inner = self.frames()
            self._expect(")")
            return inner
        if not self._skip(":"):
            return []
        line = int(self._next())
        self._expect(":")
        column = int(self._next())
        if self._skip("to"):
            while self._peek() == ":" or self._peek().isdigit():
                self._next()
        return [(name, line, column)]

    def _fused(self) -> list[Frame]:
        if self._skip("<"):
            while self._next() != ">":
                pass
        self._expect("[")
        found = self.frames()
        while self._skip(","):
            found += self.frames()
        self._expect("]")
        return found

    def _peek(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        return "" if found is None else found[1]

    def _next(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        if found is None or not found[1]:
            raise ValueError(f"a location ended early or has a character that MLIR does not print, got {self.text!r}")
        self.position = found.end()
        return found[1]

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise ValueError(f"expected {token!r} in a location, got {self.text!r} at {self.position}")
