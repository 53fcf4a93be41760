"""`louver claims`: the documents that Louver was built after, and the verdict on each of their statements."""

from __future__ import annotations

import functools
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from louver.measure.report.table import NAME, Column, Result, Table, folded, right

VERDICTS = (
    "reproduced",
    "contradicts itself",
    "contradicts the PTX ISA",
    "confirmed by measurement",
    "refuted by measurement",
    "cannot be checked here",
    "in the project",
)
"""reproduced: its own data, code or arithmetic, run here, gives what it says. contradicts itself: the same gives
something else, or another part of it denies it. contradicts the PTX ISA: ptxas, or the legal forms, deny it. confirmed,
refuted by measurement: a committed record says so. in the project: Louver does it, or has it as a form.
"""

FILE = Path(__file__).with_name("claims.json")
"""Written by `python docs/claims_tables.py`, which runs the evidence."""


class Row(NamedTuple):
    """A statement. number: its row. lines: of the document. evidence: what shows the verdict, in words."""

    number: int
    lines: str
    statement: str
    verdict: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A document. believe: what to believe of it, a line each."""

    name: str
    title: str
    believe: tuple[str, ...]
    rows: tuple[Row, ...]


@functools.cache
def kept() -> tuple[Judged, ...]:
    """All documents, in order."""
    found = json.loads(FILE.read_text(encoding="utf-8"))
    return tuple(
        Judged(each["name"], each["title"], tuple(each["believe"]), tuple(Row(*row) for row in each["rows"]))
        for each in found
    )


def list_documents() -> Result:
    """The number of statements of each document, by verdict."""
    counts = {each.name: Counter(row.verdict for row in each.rows) for each in kept()}
    documents = [
        {"name": each.name, "title": each.title, "statements": len(each.rows), "verdicts": dict(counts[each.name])}
        for each in kept()
    ]
    columns = (Column("verdict"), *right(*(each.name for each in kept()), "all"))
    rows: list[tuple[str, ...]] = []
    for verdict in VERDICTS:
        numbers = [counts[each.name][verdict] for each in kept()]
        rows.append((verdict, *map(str, numbers), f"{sum(numbers)}"))
    sizes = [len(each.rows) for each in kept()]
    titles = [f"{each.name}: {each.title}" for each in kept()]
    table = Table("", columns, rows, ("statements", *map(str, sizes), f"{sum(sizes)}"))
    return Result("claims", {"documents": documents}, [*titles, "", table])


def list_claims(name: str, verdict: str | None) -> Result:
    """The statements of a document, or those with a verdict. Raises ValueError for an unknown name or verdict."""
    found = {each.name: each for each in kept()}.get(name)
    if found is None:
        raise ValueError(f"the documents are {', '.join(each.name for each in kept())}, got {name!r}")
    if verdict is not None and verdict not in VERDICTS:
        raise ValueError(f"the verdicts are {', '.join(VERDICTS)}, got {verdict!r}")
    rows = [row for row in found.rows if verdict in (None, row.verdict)]
    texts = (Column("lines", least=5), *folded("statement", "verdict"), Column("evidence", least=2 * NAME))
    table = Table(
        f"{found.name}: {found.title}", (*right("row"), *texts), [(f"{row.number}", *row[1:]) for row in rows]
    )
    data = {
        "document": found.name,
        "title": found.title,
        "believe": list(found.believe),
        "claims": [row._asdict() for row in rows],
    }
    return Result("claims", data, [*found.believe, table] if verdict is None else [table])
