"""Results of pruning and compressing each weight, as records, a table and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from louver.measure.report.table import NAME, Column, Table
from louver.models.steps import LayerRow

HEADINGS = ("tensor", "shape", "type", "dense", "stored", "ratio", "error")


def total(rows: Sequence[LayerRow]) -> tuple[int, int, float]:
    """Dense bytes, stored bytes, and the root mean square of the errors, weighted by elements."""
    dense = sum(row.dense_bytes for row in rows)
    stored = sum(row.stored_bytes for row in rows)
    weights = [row.elements for row in rows]
    squares = sum(weight * row.error**2 for weight, row in zip(weights, rows, strict=True))
    return dense, stored, (squares / sum(weights)) ** 0.5 if sum(weights) else 0.0


def cells(row: LayerRow) -> tuple[str, ...]:
    """A row as text, in the order of `HEADINGS`."""
    return (
        row.name,
        "×".join(str(size) for size in row.shape),
        row.dtype,
        size_text(row.dense_bytes),
        size_text(row.stored_bytes),
        f"{row.ratio:.2f}×",
        f"{row.error:.4f}",
    )


def _total_cells(rows: Sequence[LayerRow]) -> tuple[str, ...]:
    dense, stored, error = total(rows)
    ratio = f"{dense / stored:.2f}×" if stored else "–"
    return (f"{len(rows)} tensors", "", "", size_text(dense), size_text(stored), ratio, f"{error:.4f}")


def layers_table(rows: Sequence[LayerRow], title: str = "") -> Table:
    """The rows and their total."""
    columns = tuple(
        Column(name, right=name not in ("tensor", "type"), least=NAME if name == "tensor" else 0) for name in HEADINGS
    )
    return Table(title, columns, [cells(row) for row in rows], footer=_total_cells(rows))


def layers_json(rows: Sequence[LayerRow]) -> dict[str, Any]:
    """The rows and their total as JSON values."""
    dense, stored, error = total(rows)
    return {
        "tensors": [asdict(row) for row in rows],
        "total": {"dense_bytes": dense, "stored_bytes": stored, "error": error},
    }


def size_text(size: int) -> str:
    """Bytes with a binary unit."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"
