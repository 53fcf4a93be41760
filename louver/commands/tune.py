"""`louver tune`: time schedules on the GPU at hand and keep the best; or show what is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from louver.bench.machine import require_torch
from louver.bench.problems import parse_shapes
from louver.bench.tune import Tuned, classes_between, entry_of, tune_and_keep
from louver.bench.tune_run import Task
from louver.formats.dtypes import element_type
from louver.frontend.problem import PRODUCTS, Kind, Problem
from louver.isa.targets import target
from louver.kernels.tuned import kept, tables
from louver.kernels.tuned_entry import Entry, UnusableEntryError, status
from louver.passes.schedule import Schedule
from louver.report.style import plain_table
from louver.runtime.device import require_device

if TYPE_CHECKING:
    from rich.console import Console

TARGET = "sm_90a"
"""The target that kept schedules are for."""

NAMES = {"int8": "s8"}
"""What users call a type, and its name."""


def parse_range(text: str) -> tuple[int, int]:
    """The least and the greatest N of a text such as "1..8192", or "256" for one. Raises ValueError."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise ValueError(f"a range of N is LEAST..GREATEST, such as 1..8192, or one N, got {text!r}")
    return int(low), int(high or low)


def tasks(shapes: str, dtypes: str, kind: str, out: str | None, n: str | None, accumulate: str = "auto") -> list[Task]:
    """What the options ask for. Raises ValueError with the rule that they break.

    out: output type, by default what the library returns. n: a range of N in place of the shapes' own. accumulate: as in
    `louver.matmul`.
    """
    found: list[Task] = []
    for name in dtypes.split(","):
        dtype = NAMES.get(name.strip(), name.strip())
        if (dtype, dtype) not in PRODUCTS:
            raise ValueError(f"element types are {', '.join(a for a, b in PRODUCTS if a == b)}, got {dtype!r}")
        major = "k_major" if kind == "linear" or element_type(dtype).bits == 8 else "n_major"
        written = out or PRODUCTS[dtype, dtype][0]
        problem = Problem(cast("Kind", kind), dtype, dtype, written, accumulate=accumulate, b_layout=major)
        for m, columns, k in parse_shapes(shapes):
            sizes = (columns,) if n is None else classes_between(*parse_range(n))
            found += [Task(problem, m, each, k) for each in sizes]
    return list(dict.fromkeys(found))


def run_tune(wanted: Sequence[Task], table: Path | None, console: Console) -> None:
    """Tune, say what was found task by task, and write it as a table that packages can carry, too, if one is named.

    Raises CannotMeasureError where this machine cannot, ArithmeticError when a schedule computes wrongly.
    """
    torch = require_torch()
    place = require_device()
    found: list[Entry] = []
    for tuned in tune_and_keep(torch, wanted, place):
        console.print(result_line(tuned), markup=False, highlight=False, soft_wrap=True)
        found.append(entry_of(tuned, place))
    if table is not None:
        table.write_text(table_text(place.name, found), encoding="utf-8")
        console.print(f"wrote {table}", markup=False, highlight=False, soft_wrap=True)


def result_line(tuned: Tuned) -> str:
    """One task's result: how much faster than the model's choice, by which fields."""
    found = tuned.found
    changed = differences(asdict(found.best), asdict(found.base)) or "the model's choice"
    tried = f"{len(found.times)} schedules timed, {len(tuned.refused)} refused"
    return f"{tuned.task}: {found.times[found.best] * 1e6:.1f} µs, {tuned.gain:.3f}× the model: {changed} ({tried})"


def differences(schedule: dict[str, Any], base: dict[str, Any]) -> str:
    """The fields in which a schedule differs from another."""
    return ", ".join(f"{name} {value}" for name, value in schedule.items() if base.get(name) != value)


def table_text(device: str, entries: Sequence[Entry]) -> str:
    """Entries as a package's table: equal schedules of a problem share a row."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in entries:
        problem = {
            name: value for name, value in entry.place.problem.items() if value is None or isinstance(value, str)
        }
        row = {"problem": problem, "aligned_output": entry.place.aligned_output, "schedule": dict(entry.schedule)}
        shared = rows.setdefault(json.dumps(row, sort_keys=True), {**row, "sizes": []})
        shared["sizes"].append(list(entry.place.sizes))
    return json.dumps({"device": device, "entries": list(rows.values())}, indent=1, ensure_ascii=False) + "\n"


def show(console: Console) -> None:
    """All that is kept, and why what is not used is passed over. Needs no GPU."""
    table = plain_table("tuned schedules, those of this user first, then the package's")
    for heading in ("device", "problem", "M×N×K up to", "schedule", "µs", "state"):
        table.add_column(heading)
    rows = list(_rows())
    for row in rows:
        table.add_row(*row)
    console.print(table)
    if not rows:
        console.print("none: the model chooses every schedule", markup=False)


def _rows() -> Iterator[tuple[str, ...]]:
    for path, found in kept():
        if isinstance(found, UnusableEntryError):
            yield path.name, "", "", "", "", f"passed over: {found}"
        else:
            yield _row(found)
    for entry in tables():
        yield _row(entry)


def _row(entry: Entry) -> tuple[str, ...]:
    reason = status(entry, target(TARGET))
    facts = entry.place.problem
    types = f"{facts.get('kind')} {facts.get('a')}×{facts.get('b')}→{facts.get('out')} {facts.get('b_layout')}"
    mode = str(facts.get("accumulate"))
    extras = f" {mode}" if mode in ("f16", "promoted") else ""
    extras += "" if facts.get("bias") is None else " + bias"
    known = [field.name for field in fields(Schedule)]
    schedule = " ".join(f"{name}={entry.schedule[name]}" for name in known if name in entry.schedule)
    us = "" if entry.microseconds is None else f"{entry.microseconds:.1f}"
    sizes = "×".join(map(str, entry.place.sizes))
    return entry.place.device, types + extras, sizes, schedule, us, f"passed over: {reason}" if reason else "used"
