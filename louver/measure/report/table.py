"""The layout of all tables: columns if they fit, else one record for each row. All text of a command passes `shown`."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar, cast

_PLAIN = str.maketrans(
    {"×": "x", "–": "-", "µ": "u", "→": "->", "…": "...", "Δ": "change", "±": "+-", "─": "-", "·": "*"}
)
"""Replacements for characters of the tables that encodings such as ASCII do not have."""


def shown(text: str, encoding: str = "utf-8", keep: str = "") -> str:
    r"""The text without characters that control a terminal, in characters of `encoding`.

    Unprintable characters become escapes such as `\x1b`: control characters, line ends, marks that change the direction
    of text, lone surrogates. keep: unprintable characters that stay.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def cells(text: str) -> int:
    """Columns of a terminal for text from `shown`."""
    # Below U+0300, the combining marks, every printable character has one cell.
    return len(text) if text.isascii() or max(text) < "\u0300" else sum(map(_cells, text))


def _cells(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fold(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, split at spaces. A longer word is split after one of "./_-,", or anywhere."""
    if cells(text) <= width:
        yield text
        return
    start = 0
    while (end := _fitting(text, start, width)) < len(text):
        space = text.rfind(" ", start + 1, end + 1)
        if space < 0:
            end = max(text.rfind(mark, start, end) + 1 for mark in "./_-,") or end
        yield text[start:end] if space < 0 else text[start:space]
        start = end if space < 0 else space + 1
    if start < len(text):
        yield text[start:]


def _fitting(text: str, start: int, width: int) -> int:
    """The end of the characters from `start` that fit, at least one character."""
    used = 0
    for index in range(start, len(text)):
        used += _cells(text[index])
        if used > width:
            return max(index, start + 1)
    return len(text)


K = TypeVar("K")
R = TypeVar("R")

NAME = 16
"""Least width, in cells, of a column of names or sentences. Less is hard to read."""

GAP = "  "

NONE = "–"
"""A cell without a value."""


def number(value: float | None, form: str) -> str:
    """A number as the text of a cell."""
    return NONE if value is None else format(value, form)


def grouped(rows: Iterable[R], key: Callable[[R], K]) -> dict[K, list[R]]:
    """The rows of each key, in their order."""
    found: dict[K, list[R]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


@dataclass(frozen=True, slots=True)
class Column:
    """right: align at the right, as numbers. least: least cells of folded text; 0: never folded."""

    heading: str
    right: bool = False
    least: int = 0


def right(*headings: str) -> tuple[Column, ...]:
    """Columns of numbers."""
    return tuple(Column(heading, right=True) for heading in headings)


def folded(*headings: str) -> tuple[Column, ...]:
    """Columns of names or sentences."""
    return tuple(Column(heading, least=NAME) for heading in headings)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text below a title. The first column names the row. footer: a last row of totals."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Sequence[str]]
    footer: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for row in self._all_rows():
            if len(row) != len(self.columns):
                raise ValueError(f"a row has {len(self.columns)} cells, got {len(row)}: {list(row)}")

    def lines(self, width: int | None = None, encoding: str = "utf-8") -> Iterator[str]:
        """The table in lines of at most `width` cells (None: any length), in characters of `encoding`."""
        if self.title:
            yield from paragraph(self.title, width, encoding)
        headings = [shown(column.heading, encoding) for column in self.columns]
        rows = [[shown(cell, encoding) for cell in row] for row in self._all_rows()]
        widths = self._widths([headings, *rows], width)
        if widths is None:
            yield from _records(headings, rows, width or 0)
            return
        rule = shown("─", encoding) * (sum(widths) + len(GAP) * (len(widths) - 1))
        yield from self._line(headings, widths)
        yield rule
        for index, row in enumerate(rows):
            if self.footer is not None and index == len(rows) - 1:
                yield rule
            yield from self._line(row, widths)

    def markdown(self) -> str:
        """The table as Markdown, without its title. The footer is bold."""
        rules = tuple("---:" if column.right else "---" for column in self.columns)
        rows = [tuple(column.heading for column in self.columns), rules, *self.rows]
        if self.footer is not None:
            rows.append(tuple(f"**{cell}**" if cell else "" for cell in self.footer))
        return "".join("| " + " | ".join(shown(cell).replace("|", "\\|") for cell in row) + " |\n" for row in rows)

    def _all_rows(self) -> Iterator[Sequence[str]]:
        yield from self.rows
        if self.footer is not None:
            yield self.footer

    def _widths(self, rows: Sequence[Sequence[str]], width: int | None) -> list[int] | None:
        """The columns' widths; None if `width` is too small. Folded columns share the rest of the width."""
        natural = [max(map(cells, column)) for column in zip(*rows, strict=True)]
        if width is None:
            return natural
        widths = [min(size, column.least or size) for size, column in zip(natural, self.columns, strict=True)]
        room = width - len(GAP) * (len(widths) - 1) - sum(widths)
        if room < 0:
            return None
        order = sorted(range(len(widths)), key=lambda index: natural[index] - widths[index])
        for count, index in enumerate(order):
            extra = min(natural[index] - widths[index], room // (len(order) - count))
            widths[index] += extra
            room -= extra
        return widths

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
        folded = (fold(cell, width) for cell, width in zip(row, widths, strict=True))
        for texts in zip_longest(*folded, fillvalue=""):
            parts: list[str] = []
            for column, text, width in zip(self.columns, texts, widths, strict=True):
                padding = " " * (width - cells(text))
                parts.append(padding + text if column.right else text + padding)
            yield GAP.join(parts).rstrip()


def _records(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for index, (name, *values) in enumerate(rows):
        if index:
            yield ""
        yield from fold(name, width)
        for heading, value in zip(headings[1:], values, strict=True):
            if value:
                first, *more = fold(f"{heading}: {value}", width - 2 * len(GAP))
                yield GAP + first
                yield from (2 * GAP + line for line in more)


def paragraph(text: str, width: int | None = None, encoding: str = "utf-8") -> Iterator[str]:
    """Text in lines of at most `width` cells."""
    line = shown(text, encoding)
    yield from [line] if width is None else fold(line, width)


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
