"""Write what commands print into the documents: `python docs/generate.py`; with `--check`, only say what is stale.

A generated block is a fence below a comment that says the command, and which lines of its output stand there:

    <!-- louver compile FILE --emit sched | lines 1-9, from "sched.role @producer" to "sched.advance", with "mma" -->

`louver …` runs the command line, `show FILE` prints a file, `call MODULE:FUNCTION` prints the text that a function of Louver returns. `lines A-B` counts from 1. `from "…" to "…"` goes from each line that
contains the first text to the next that contains the second. `with "…"` is each line that contains it, `first "…"` the first of them.
Without any of these the whole output stands there. What is left out leaves a `…`: lines, and the middle of lines that are too long.
What all lines are indented by goes.

Markdown stands between two comments, as a function of a module beside this file returns it:

    <!-- text passes_table:table canonical -->
    <!-- end -->
"""

from __future__ import annotations

import difflib
import functools
import importlib
import re
import shlex
import sys
from contextlib import chdir
from pathlib import Path
from textwrap import dedent

from click.testing import CliRunner

from louver.cli import app

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ROOT / "docs"

WIDTH, END = 220, 60
"""Characters of a line at most, and how many of a longer line's end are kept: operands and types stand there."""

_BLOCK = re.compile(r"^<!-- ((?:louver|show|call) .*?) -->\n(```\w*\n)(.*?)^```$", re.M | re.S)
_TEXT = re.compile(r"^<!-- text (\w+):(\w+)((?: [\w.-]+)*) -->\n(.*?)^<!-- end -->$", re.M | re.S)
_RULE = re.compile(r'lines (\d+)-(\d+)|from "([^"]+)" to "([^"]+)"|(with|first) "([^"]+)"')


def generated(document: str) -> str:
    """The document with every generated block as its command prints it now. Raises ValueError for a command that fails."""
    document = _BLOCK.sub(lambda found: f"<!-- {found[1]} -->\n{found[2]}{block(found[1])}```", document)
    return _TEXT.sub(
        lambda found: f"{found[0].partition(chr(10))[0]}\n{text(*found.group(1, 2, 3))}<!-- end -->", document
    )


@functools.cache
def text(module: str, function: str, words: str) -> str:
    """The Markdown that a function of a module beside this file returns for some words."""
    return getattr(importlib.import_module(module), function)(*words.split())


def block(command: str) -> str:
    """The text of a block: lines of the command's output, each ended."""
    call, _, rules = command.partition(" | ")
    kept = dedent("\n".join(chosen(printed(call.strip()), rules.strip())))
    return "".join(f"{_shortened(line)}\n" for line in kept.splitlines())


def _shortened(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[: WIDTH - END - 3]} … {line[-END:]}"


@functools.cache
def printed(call: str) -> tuple[str, ...]:
    """The lines that a command prints, run in the repository's root."""
    program, *arguments = shlex.split(call)
    with chdir(ROOT):
        if program == "show":
            (file,) = arguments
            return tuple(Path(file).read_text(encoding="utf-8").splitlines())
        if program == "call":
            module, _, function = arguments[0].partition(":")
            return tuple(getattr(importlib.import_module(module), function)().splitlines())
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": None})  # tables as wide as they are
    if result.exit_code != 0:
        raise ValueError(f"{call} ends with {result.exit_code}: {result.output or result.exception}")
    return tuple(result.stdout.rstrip("\n").splitlines())


def chosen(lines: tuple[str, ...], rules: str) -> list[str]:
    """The lines that rules choose, with a mark for those between and around them. Raises ValueError for a rule that chooses none."""
    if not rules:
        return list(lines)
    wanted = sorted({index for rule in _split(rules) for index in _indices(lines, rule)})
    found: list[str] = []
    before = -1
    for index in [*wanted, len(lines)]:
        if index > before + 1:
            # As far in as the line that is kept beside it.
            beside = lines[index if index < len(lines) else before]
            found.append(beside[: len(beside) - len(beside.lstrip())] + "…")
        if index < len(lines):
            found.append(lines[index])
        before = index
    return found


def _split(rules: str) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    position = 0
    while position < len(rules):
        rule = _RULE.match(rules, position)
        if rule is None or (rule.end() < len(rules) and not rules.startswith(", ", rule.end())):
            raise ValueError(f'a rule is lines A-B, from "…" to "…", with "…" or first "…", got {rules[position:]!r}')
        found.append(rule)
        position = rule.end() + 2
    return found


def _indices(lines: tuple[str, ...], rule: re.Match[str]) -> list[int]:
    first, last, start, end, which, part = rule.groups()
    found: list[int] = []
    if first is not None:
        found = list(range(int(first) - 1, min(int(last), len(lines))))
    elif part is not None:
        found = [index for index, line in enumerate(lines) if part in line][: 1 if which == "first" else None]
    else:
        begins = [index for index, line in enumerate(lines) if start in line]
        for begin in begins:
            stop = next((index for index in range(begin + 1, len(lines)) if end in lines[index]), None)
            if stop is None:
                raise ValueError(f"{rule[0]} ends nowhere")
            found += range(begin, stop + 1)
    if not found:
        raise ValueError(f"{rule[0]} chooses no line")
    return found


def stale(path: Path) -> str:
    """The differences between a document and the output of its commands, as a diff; "" for none."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)
    return "".join(difflib.unified_diff(text.splitlines(True), generated(text).splitlines(True), f"{name}", "now"))


def main(arguments: list[str]) -> int:
    """0, or 1 where `--check` finds a stale document."""
    if arguments not in ([], ["--check"]):
        raise SystemExit(f"usage: python docs/generate.py [--check], got {' '.join(arguments)}")
    status = 0
    for path in sorted(DOCUMENTS.rglob("*.md")):
        difference = stale(path)
        if not difference:
            continue
        if arguments:
            print(difference, f"{path.relative_to(ROOT)} is stale: run python docs/generate.py", sep="\n")
            status = 1
        else:
            path.write_text(generated(path.read_text(encoding="utf-8")), encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
