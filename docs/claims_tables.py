"""The tables of docs/claims.md and docs/claims/*.md; `python docs/claims_tables.py` runs all evidence and keeps it as JSON.

The JSON is part of the package, for `louver claims`. `python docs/generate.py` then writes the pages from it. A test
runs the evidence again and compares.
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from claims.claim import Document
from louver.cli.commands.claims import FILE, VERDICTS, kept
from louver.measure.report.table import Column, Table

NAMES = ("000", "001", "002", "003", "004")
DOCS = Path(__file__).resolve().parent


def document(name: str) -> Document:
    """A document with its claims."""
    return importlib.import_module(f"claims.document_{name}").DOCUMENT


def data(name: str) -> dict[str, Any]:
    """A document as JSON values; runs the evidence of each claim."""
    found = document(name)
    rows = [[each.number, each.lines, each.statement, each.verdict, each.shown()] for each in found.claims]
    return {"name": name, "title": found.title, "believe": list(found.believe), "rows": rows}


def text(documents: list[dict[str, Any]]) -> str:
    """The file of the package: a line for each row."""
    parts = []
    for each in documents:
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in each["rows"])
        head = json.dumps({key: value for key, value in each.items() if key != "rows"}, ensure_ascii=False)
        parts.append(f'{head[:-1]}, "rows": [\n{rows}\n]}}')
    return "[\n" + ",\n".join(parts) + "\n]\n"


def summary() -> str:
    """The number of statements by document and verdict."""
    columns = (Column("document"), *(Column(each, right=True) for each in ("statements", *VERDICTS)))
    rows, totals = [], Counter[str]()
    for each in kept():
        counts = Counter(row.verdict for row in each.rows)
        totals += counts
        link = f"[{each.name}](claims/document_{each.name}.md) {each.title}"
        rows.append((link, f"{counts.total()}", *(f"{counts[verdict]}" for verdict in VERDICTS)))
    footer = ("all", f"{totals.total()}", *(f"{totals[verdict]}" for verdict in VERDICTS))
    return Table("", columns, rows, footer).markdown()


def believe() -> str:
    """What to believe of each document."""
    return "\n".join(
        f"### {each.name}: {each.title}\n" + "".join(f"- {line}\n" for line in each.believe) for each in kept()
    )


def table(name: str) -> str:
    """What to believe of a document, then its statements."""
    (found,) = [each for each in kept() if each.name == name]
    columns = tuple(Column(heading) for heading in ("row", "lines", "statement", "verdict", "evidence"))
    rows = [(f"{row.number}", row.lines, row.statement, row.verdict, row.evidence) for row in found.rows]
    return "".join(f"- {line}\n" for line in found.believe) + "\n" + Table("", columns, rows).markdown()


def main() -> None:
    """Run everything and write the package's file."""
    FILE.write_text(text([data(name) for name in NAMES]), encoding="utf-8")
    print(f"wrote {FILE.relative_to(DOCS.parent)}: now python docs/generate.py")


if __name__ == "__main__":
    main()
