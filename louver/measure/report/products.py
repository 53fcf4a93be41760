"""Results of products that were run and checked, as records, tables and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.measure.report.table import Column, Table, grouped

HEADINGS = ("product", "M×N×K", "ran on", "seconds", "within the bound")

MOST_LINES = 10
"""Most kinds of products in a terminal's table."""


@dataclass(frozen=True, slots=True)
class ProductRow:
    """One product, checked against float64. shape: (M, N, K): rows of the sparse weight, tokens, inner size.

    path: "GPU", "reference" or "emulator". seconds: wall time of the call, with copies. ok: all errors are within the
    bound.
    worst: greatest error over its bound, near 1 for a right product, because output rounding is most of the bound.
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
    return (row.name, shape, row.path, f"{row.seconds:.3f}", "yes" if row.ok else "NO")


def products_table(rows: Sequence[ProductRow], title: str) -> Table:
    """A line for all products of one shape and path, for a terminal. Shapes after `MOST_LINES` are counted."""
    kinds = grouped(rows, lambda row: (row.shape, row.path))
    lines = [_kind_cells(same) for same in list(kinds.values())[:MOST_LINES]]
    if len(kinds) > MOST_LINES:
        lines.append((f"{len(kinds) - MOST_LINES} more", "", "", "", ""))
    columns = tuple(Column(name, right=name != "ran on") for name in ("M×N×K", "products", *HEADINGS[2:]))
    return Table(title, columns, lines)


def _kind_cells(rows: Sequence[ProductRow]) -> tuple[str, ...]:
    good = sum(row.ok for row in rows)
    _, shape, path, _, _ = cells(rows[0])
    within = "all" if good == len(rows) else f"{good} of {len(rows)}"
    return (shape, str(len(rows)), path, f"{sum(row.seconds for row in rows):.3f}", within)


def each_product(rows: Sequence[ProductRow]) -> Table:
    """A line for each product."""
    columns = tuple(Column(name, right=name in ("M×N×K", "seconds")) for name in HEADINGS)
    return Table("", columns, [cells(row) for row in rows])
