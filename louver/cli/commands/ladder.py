"""`louver bench ladder`: times schedules from a plain one to Louver's, one field at a time, on the current GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from louver.cli.commands.bench import picture
from louver.cli.commands.notes import note
from louver.measure.ladder import QUICK, ladder, measure_ladder
from louver.measure.machine import header, require_torch
from louver.measure.protocol import Protocol
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.ladder import ladder_of, ladder_tables
from louver.measure.report.result import Result


def dtypes(text: str) -> tuple[str, ...]:
    """Element types from text such as "e4m3,f16". Raises ValueError for a type without a ladder."""
    given = tuple(part.strip() for part in text.split(","))
    for dtype in given:
        ladder(dtype)
    return given


def bench_ladder(wanted: Sequence[str], out: Path, *, quick: bool) -> Result:
    """Measure the ladders; write `ladder.json` (after each) and `ladder.png` into `out`.

    Raises CannotMeasureError if this machine cannot measure, ArithmeticError if a result is wrong.
    """
    torch = require_torch()
    protocol, facts = QUICK if quick else Protocol(), header(torch)
    path, found = out / "ladder.json", list[dict[str, Any]]()
    record = {"schema": SCHEMA, "kind": "ladder", **facts, "protocol": protocol.describe_bursts(), "ladders": found}
    for dtype in wanted:
        found.append(measure_ladder(torch, dtype, protocol))
        note(f"wrote {write_record(path, record)}: {dtype}")
        torch.cuda.empty_cache()
    note(picture(path, out / "ladder.png"))
    return Result("ladder", record, ladder_tables([*map(ladder_of, found)], facts["device"]))
