"""A record of products as a terminal table: TFLOP/s, factors over the libraries, geometric means."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean

from louver.measure.report.gemm import CONTENDERS, LABELS, PRODUCTS, GemmRecord, GemmRow
from louver.measure.report.table import Column, Table, grouped, number, right


def factor(row: GemmRow, over: str) -> float | None:
    """Louver's speed relative to a contender; None if one of them was not timed."""
    ours, other = row.times_us.get("ours"), row.times_us.get(over)
    return None if ours is None or other is None else other / ours


def mean_factor(rows: Sequence[GemmRow], over: str) -> float | None:
    """Geometric mean of Louver's factors over a contender; None without factors."""
    found = [value for value in (factor(row, over) for row in rows) if value is not None]
    return geometric_mean(found) if found else None


def gemm_table(record: GemmRecord, title: str) -> Table:
    """Rows by element types, each group with its geometric means. Dependent launches have a column if they were timed."""
    timed = {name for row in record.rows for name in row.times_us}
    products = [name for name in PRODUCTS if name in CONTENDERS or name in timed]
    speeds = right(*(f"{LABELS[product]} TFLOP/s" for product in products))
    factors = right(*(f"× {LABELS[over]}" for over in CONTENDERS[1:]))
    shown: list[tuple[str, ...]] = []
    for types, rows in grouped(record.rows, lambda row: row.types).items():
        for row in rows:
            numbers = [number(row.tflops(product), ".0f") for product in products]
            numbers += [number(factor(row, over), ".2f") for over in CONTENDERS[1:]]
            shown.append(("×".join(map(str, row.shape)), types, *numbers))
        means = [number(mean_factor(rows, over), ".2f") for over in CONTENDERS[1:]]
        shown.append(("geomean", types, *[""] * len(products), *means))
    return Table(title, (*right("M×N×K"), Column("type"), *speeds, *factors), shown)
