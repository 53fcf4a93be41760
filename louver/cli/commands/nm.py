"""`louver bench nm` and `nm-ladder`: the figures of NM-SpMM on the current GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.cli.commands.bench import picture
from louver.cli.commands.notes import note
from louver.formats.pattern import Pattern
from louver.measure.machine import header, require_torch, tf32_products
from louver.measure.nm import (
    CASES,
    FEW,
    FEW_TOKENS,
    PROTOCOL,
    QUICK_CASES,
    compile_ahead,
    ladder_patterns,
    measure_ladder,
    measure_weight,
    paper_points,
    patterns,
    points_of,
)
from louver.measure.protocol import Budget
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.nm import ladder_table, nm_record, nm_table
from louver.measure.report.table import Result, Table
from louver.runtime.device import require_device


def bench_nm(
    length: int,
    out: Path,
    *,
    quick: bool,
    dtype: str = "f32",
    chosen: Sequence[Pattern] = (),
    shapes: Sequence[tuple[int, int, int]] = (),
    budget: float | None = None,
) -> Result:
    """Measure the points; write `nm.json` or `nm-DTYPE.json` (after every weight) and its picture into `out`.

    length: L of the vectors. chosen: patterns instead of the paper's four of this length. shapes: products M×N×K
    instead of the paper's. budget: seconds for everything, see `Budget`; the record names the missing weights.
    Raises CannotMeasureError if this machine cannot measure, ArithmeticError if a result is wrong.
    """
    time_left, torch = Budget(budget), require_torch()
    named = {"patterns": list(map(str, chosen))} if chosen else {"length": length}
    chosen = chosen or patterns(length)
    points = points_of(shapes) if shapes else paper_points(quick=quick)
    record, path = _record(torch, "nm", named), out / ("nm.json" if dtype == "f32" else f"nm-{dtype}.json")
    record["dtype"], record["few_tokens"] = dtype, f"Up to {FEW_TOKENS} tokens: {FEW.describe_bursts()}"
    compile_ahead(points, chosen, dtype, require_device())
    for index, (weight, tokens) in enumerate(points.items()):
        if not time_left.suffices():
            missing = ["×".join(map(str, left)) for left in list(points)[index:]]
            record["missing"] = {"reason": "the time that the run was given ended", "weights": missing}
            note(f"no time left for {', '.join(missing)}")
            break
        with time_left.spending() as spent, tf32_products(torch, allowed=False):
            record["rows"] += measure_weight(torch, weight, tokens, chosen, dtype, (PROTOCOL, FEW))
            write_record(path, record)
            torch.cuda.empty_cache()
        note(f"{weight[0]}×{weight[1]}: {spent.seconds:.0f} s")
    return _written(path, record)


def bench_nm_ladder(length: int, out: Path, *, quick: bool) -> Result:
    """Measure the versions; write `nm-ladder.json` (after every row) and `nm-ladder.png`. Raises like `bench_nm`."""
    torch = require_torch()
    record, path = _record(torch, "nm-ladder", {"length": length}), out / "nm-ladder.json"
    with tf32_products(torch, allowed=False):
        for row in measure_ladder(torch, QUICK_CASES if quick else tuple(CASES), ladder_patterns(length), PROTOCOL):
            record["rows"].append(row)
            write_record(path, record)
            note(f"{row['case']} {row['pattern']}")
            torch.cuda.empty_cache()
    return _written(path, record)


def _record(torch: Any, kind: str, named: dict[str, Any]) -> dict[str, Any]:
    facts = {"protocol": PROTOCOL.describe_bursts(), **named, "rows": list[dict[str, Any]]()}
    return {"schema": SCHEMA, "kind": kind, **header(torch), **facts}


def _written(path: Path, record: dict[str, Any]) -> Result:
    """Write the record, draw it if it has rows, and return the command's result."""
    note(f"wrote {write_record(path, record)}")
    shown: list[Table | str] = []
    if record["rows"]:
        note(picture(path, path.with_suffix(".png")))
        table = nm_table if record["kind"] == "nm" else ladder_table
        shown.append(table(nm_record(record)))
    refused = sorted(
        {f"{row['pattern']} {name}: {why}" for row in record["rows"] for name, why in row.get("refused", {}).items()}
    )
    missing = record.get("missing", {}).get("weights", [])
    shown += [f"not built: {each}" for each in refused] + [f"no time left for weights {', '.join(missing)}"] * bool(
        missing
    )
    return Result(record["kind"], record, shown)
