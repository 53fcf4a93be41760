"""Resolves source locations in MLIR text before it is parsed. xDSL rejects location names that are defined later. MLIR
prints `loc(#loc5)` after each operation and `#loc5 = loc("kernels.py":14:22)` at the end. Each reference is replaced by
the place in the user's file, and the definitions are removed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from louver.frontend.ttir.limits import MAX_PLACES
from louver.isa.rule import RuleError

Frame: TypeAlias = tuple[str, int, int]
"""A place in a source file: path, line and column."""

_ALIAS = re.compile(r"^(#[\w.]+) = loc\((.*)\)$")
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|#[\w.]+|\w+|[():\[\],<>]|$)')
_USE = re.compile(r'"(?:[^"\\]|\\.)*"|\s*\bloc\(')
_LIBRARY = re.compile(r"(^|/)triton/(language|experimental)/")


def resolve_locations(text: str) -> str:
    """`text` with every location as the innermost place outside Triton's own files. Locations without a place are
    removed. Raises ValueError for a location that MLIR does not print, such as one that names itself.
    """
    aliases: dict[str, str] = {}
    lines: list[str] = []
    for line in text.splitlines():
        found = _ALIAS.match(line)
        if found:
            aliases[found[1]] = found[2]
        else:
            lines.append(line)
    places = _Places(aliases)
    return "\n".join(_resolve_line(line, places) for line in lines) + "\n"


def _resolve_line(line: str, places: _Places) -> str:
    parts: list[str] = []
    start = 0
    while found := _USE.search(line, start):
        parts.append(line[start : found.start()])
        start = found.end()
        if not found[0].endswith("loc("):
            parts.append(found[0])
            continue
        end = _closing(line, start)
        frame = places.of(line[start:end])
        if frame is not None:
            path, row, column = frame
            parts.append(f' loc("{path}":{row}:{column})')
        start = end + 1
    return "".join([*parts, line[start:]])


def _closing(line: str, start: int) -> int:
    """The position of the parenthesis that closes the one before `start`."""
    depth = 1
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[()]', line[start:]):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return start + found.start()
    raise RuleError(f"a location ends with a parenthesis, got {line[start:][:200]!r}")


def _inner(frame: Frame | None, around: Frame | None) -> Frame | None:
    """Of two places the inner one, unless only the outer one is the user's."""
    if frame is None or (around is not None and _LIBRARY.search(frame[0]) and not _LIBRARY.search(around[0])):
        return around
    return frame


@dataclass(slots=True)
class _Places:
    """The place of each location. open: names that are being read, from the outside in. depth: of locations, named or
    not, that are being read.
    """

    aliases: dict[str, str]
    known: dict[str, Frame | None] = field(default_factory=dict[str, "Frame | None"])
    open: list[str] = field(default_factory=list[str])
    depth: int = 0

    def of(self, text: str) -> Frame | None:
        if text not in self.known:
            self.known[text] = _Reader(text, self).frame()
        return self.known[text]

    def named(self, name: str) -> Frame | None:
        if name not in self.aliases:
            raise RuleError(f"a location's name is defined in the same text, got {name}")
        if name in self.open:
            raise RuleError(f"a location names others, got {' in '.join([*self.open, name][-4:])}, which names itself")
        self.open.append(name)
        found = self.of(self.aliases[name])
        self.open.pop()
        return found


@dataclass(slots=True)
class _Reader:
    """Reads a location. position: of the next character."""

    text: str
    places: _Places
    position: int = 0

    def frame(self) -> Frame | None:
        """The innermost place of the user's, else of Triton's."""
        places = self.places
        if places.depth == MAX_PLACES:
            raise RuleError(f"locations are within each other at most {MAX_PLACES} deep, got more: leave them out")
        places.depth += 1
        found = self._frame()
        places.depth -= 1
        return found

    def _frame(self) -> Frame | None:
        token = self._next()
        if token.startswith("#"):
            return self.places.named(token)
        if token.startswith('"'):
            return self._named(token[1:-1])
        match token:
            case "unknown":
                return None
            case "callsite":
                self._expect("(")
                callee = self.frame()
                self._expect("at")
                caller = self.frame()
                self._expect(")")
                return _inner(callee, caller)
            case "fused":
                return self._fused()
            case _:
                raise RuleError(f"a location is a file, a name, callsite, fused or unknown, got {self._shown}")

    def _named(self, name: str) -> Frame | None:
        """`"file":line:column`, `"file":line:column to :line:column`, or `"name"(location)`."""
        if self._skip("("):
            inner = self.frame()
            self._expect(")")
            return inner
        if not self._skip(":"):
            return None
        line = self._number()
        self._expect(":")
        column = self._number()
        if self._skip("to"):
            while self._peek() == ":" or self._peek().isdigit():
                self._next()
        return name, line, column

    def _number(self) -> int:
        token = self._next()
        if not token.isascii() or not token.isdigit() or len(token) > 9:
            raise RuleError(f"a line and a column are numbers of at most 9 digits, got {token[:40]!r}")
        return int(token)

    def _fused(self) -> Frame | None:
        if self._skip("<"):
            while self._next() != ">":
                pass
        self._expect("[")
        found = self.frame()
        while self._skip(","):
            found = _inner(found, self.frame())
        self._expect("]")
        return found

    @property
    def _shown(self) -> str:
        return repr(self.text if len(self.text) <= 200 else f"{self.text[:200]} …")

    def _peek(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        return "" if found is None else found[1]

    def _next(self) -> str:
        found = _TOKEN.match(self.text, self.position)
        if found is None or not found[1]:
            raise RuleError(f"a location ended early or has a character that MLIR does not print, got {self._shown}")
        self.position = found.end()
        return found[1]

    def _skip(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next()
        return True

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise RuleError(f"expected {token!r} in a location, got {self._shown} at {self.position}")
