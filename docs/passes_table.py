"""The tables of passes, from the pipelines and the docstrings `NAME: what it does.` of louver/compile."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.compile import pipeline
from louver.compile.passes import COPY, Pass, names, passes_of

ROOT = Path(__file__).resolve().parent.parent

_CANONICAL = names(pipeline.READ)
PIPELINES: dict[str, Sequence[Pass[Any]]] = {
    "canonical": pipeline.READ,
    "product": pipeline.GENERATE,
    "tiles": tuple(each for each in passes_of(pipeline.TILES) if each.name not in _CANONICAL),
}
"""The passes of a table: those that products and register tiles begin with, then those of each."""

_SUMMARY = re.compile(r"([a-z]+(?:-[a-z]+)*): (.+?[.:])(?=\s+[A-Z`]|\s*\n\n|\s*\Z)", re.S)


def table(pipeline: str) -> str:
    """A row for each pass: name, what it does, its file. Raises ValueError for a pass without such a docstring."""
    found = summaries()
    lines = ["| pass | what it does | file |", "|---|---|---|"]
    for name in names([each for each in PIPELINES[pipeline] if each is not COPY]):
        if name not in found:
            raise ValueError(f"a pass has a docstring in louver/compile that begins with its name, got none for {name}")
        text, path = found[name]
        # A small kernel before and behind the pass, where a test keeps one.
        example = f"tests/golden/canonical/passes/{name}.diff"
        shown = f"[`{name}`](../{example})" if (ROOT / example).is_file() else f"`{name}`"
        lines.append(f"| {shown} | {text.rstrip('.:')} | `{path}` |")
    return "\n".join(lines) + "\n"


def shared() -> str:
    """The canonical passes that register tiles run too."""
    return ", ".join(f"`{name}`" for name in names(pipeline.TILES) if name in _CANONICAL and name != COPY.name) + "\n"


def summaries() -> dict[str, tuple[str, str]]:
    """By the name of a pass: the first sentence of its docstring, and its file below louver/."""
    found: dict[str, tuple[str, str]] = {}
    below = ROOT / "louver" / "compile"
    for path in sorted(below.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.FunctionDef):
                summary = _SUMMARY.match(ast.get_docstring(node) or "")
                if summary:
                    found[summary[1]] = " ".join(summary[2].split()), str(path.relative_to(below.parent))
    return found
