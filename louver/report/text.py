"""Text for a terminal: everything that a command prints or writes as text passes `shown`."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_PLAIN = str.maketrans(
    {"×": "x", "–": "-", "µ": "u", "→": "->", "…": "...", "Δ": "change", "‖": "||", "±": "+-", "─": "-", "·": "*"}
)
"""Stand-ins for characters that the tables use and an encoding such as ASCII does not have."""


def shown(text: str, encoding: str = "utf-8", keep: str = "") -> str:
    r"""The text without anything that a terminal would obey, in characters of `encoding`.

    Characters that do not print become escapes such as `\x1b`: control characters, line ends, marks that change the
    direction of text, lone surrogates. keep: such characters that stay.
    """
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def cells(text: str) -> int:
    """Columns that a terminal takes for text that is `shown`."""
    # Below the combining marks every character that prints has one cell.
    return len(text) if text.isascii() or max(text) < "\u0300" else sum(map(_cells, text))


def _cells(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fold(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at spaces; a longer word after a dot, a dash or the like, or anywhere."""
    while cells(text) > width and len(text) > 1:
        end = _fitting(text, width)
        space = text.rfind(" ", 1, end + 1)
        if space < 0:
            end = max((text.rfind(mark, 0, end) + 1 for mark in "./_-,"), default=0) or end
        yield text[:end] if space < 0 else text[:space]
        text = text[end:] if space < 0 else text[space + 1 :]
    yield text


def _fitting(text: str, width: int) -> int:
    """How many of the first characters fit; at least one."""
    used = 0
    for index, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return max(index, 1)
    return len(text)
