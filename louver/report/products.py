"""What became of each product that was run and checked, as records, a terminal table, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from louver.report.layers import markdown_line
from louver.report.table import NAME, Column, Table

HEADINGS = ("product", "M×N×K", "ran on", "seconds", "error / bound", "agrees")


@dataclass(frozen=True, slots=True)
class ProductRow:
    """One product, checked against float64.

    shape: (M, N, K): rows of the sparse weight, tokens, inner size. path: what ran it ("GPU", "reference", "emulator").
    seconds: wall time of the call, copies included. worst: greatest error over its bound; ok: none is over it.
    """

    name: str
    shape: tuple[int, int, int]
    path: str
    seconds: float
    worst: float
    ok: bool


def cells(row: ProductRow) -> tuple[str, ...]:
    """A row as text, in the order of `HEADINGS`."""
    shape = "×".join(str(size) for size in row.shape)
    return (row.name, shape, row.path, f"{row.seconds:.3f}", f"{row.worst:.3f}", "yes" if row.ok else "NO")


def products_table(rows: Sequence[ProductRow], title: str) -> Table:
    """The rows, for a terminal."""
    left = ("product", "ran on", "agrees")
    columns = tuple(Column(name, right=name not in left, least=NAME if name == "product" else 0) for name in HEADINGS)
    return Table(title, columns, [cells(row) for row in rows])


def products_markdown(rows: Sequence[ProductRow]) -> str:
    """The rows as a Markdown table."""
    lines = [markdown_line(HEADINGS), markdown_line(("---", "---:", "---", "---:", "---:", "---"))]
    return "\n".join(lines + [markdown_line(cells(row)) for row in rows]) + "\n"


def products_json(rows: Sequence[ProductRow]) -> list[dict[str, Any]]:
    """The rows as JSON values."""
    return [asdict(row) for row in rows]
