"""The text at a kernel's locations: the user's functions, or the kernel's tile IR."""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from louver.formats.regular import FormatError, RegularFile


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's text. number: from 1; 0 for an added line, such as a file's name."""

    file: str
    number: int
    text: str


def line_of(place: str) -> tuple[str, int]:
    """File and line of "file:line:column"."""
    file, line, _ = place.rsplit(":", 2)
    return file, int(line)


def user_lines(places: Iterable[str], files: Iterable[str]) -> list[SourceLine]:
    """The functions with these places, file by file. Unreadable files are left out.

    files: the only ones that are read. A place in another file stays text: anything may write a place.
    """
    readable = {os.path.realpath(file) for file in files}
    wanted: dict[str, set[int]] = defaultdict(set)
    for place in places:
        file, line = line_of(place)
        wanted[file].add(line)
    found: list[SourceLine] = []
    for file, lines in wanted.items():
        # realpath refuses a text that no path can be, such as one with a zero byte.
        if "\0" in file or os.path.realpath(file) not in readable:
            continue
        try:
            with RegularFile.open(file) as opened:
                text = opened.read(0, opened.size).decode().removesuffix("\n").split("\n")
        except (OSError, FormatError, UnicodeDecodeError):
            continue
        found.append(SourceLine(file, 0, f"# {Path(file).name}"))
        for begin, end in _spans(text, lines):
            found += [SourceLine(file, number, text[number - 1]) for number in range(begin, end + 1)]
            found.append(SourceLine(file, 0, ""))
    return found


def _spans(text: list[str], lines: set[int]) -> Iterator[tuple[int, int]]:
    """First and last line of each function of a file with one of the lines; the whole file without such functions."""
    try:
        nodes = [node for node in ast.parse("\n".join(text)).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        nodes = []
    spans = [(min([node.lineno, *(each.lineno for each in node.decorator_list)]), node.end_lineno) for node in nodes]
    held = [(begin, end) for begin, end in spans if end is not None and any(begin <= line <= end for line in lines)]
    yield from held or [(1, len(text))]
