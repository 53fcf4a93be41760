"""Text for a terminal. All text that a command prints or writes passes `shown`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

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
