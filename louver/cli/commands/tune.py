"""`louver tune`: times schedules on the current GPU and keeps the best, or lists the kept ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from louver.choose.tuned import Entry, UnusableEntryError, kept, status, tables
from louver.cli.commands.notes import note
from louver.compile.plan.schedule import FIELDS
from louver.formats.dtypes import element_type
from louver.formats.regular import Target
from louver.frontend.problem import PRODUCTS, Kind, Problem
from louver.isa.targets import SM_90A, TARGETS
from louver.measure.machine import require_torch
from louver.measure.problems import OTHER_NAMES, parse_shapes
from louver.measure.report.table import Result, Table, folded, right
from louver.measure.tune import Tuned, classes_between, entry_of, tune_and_keep
from louver.measure.tune_run import Task
from louver.runtime.device import require_device


def parse_range(text: str) -> tuple[int, int]:
    """Least and greatest N from text such as "1..8192", or "256" for one N. Raises ValueError for other text."""
    low, dots, high = text.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise ValueError(f"a range of N is LEAST..GREATEST, such as 1..8192, or one N, got {text!r}")
    return int(low), int(high or low)


def tasks(shapes: str, dtypes: str, kind: str, out: str | None, n: str | None, accumulate: str = "auto") -> list[Task]:
    """The tasks of the options. Raises ValueError with the broken rule.

    out: output type; None: the library's default. n: a range of N instead of the shapes'.
    """
    found: list[Task] = []
    for name in dtypes.split(","):
        dtype = OTHER_NAMES.get(name.strip(), name.strip())
        if (dtype, dtype) not in PRODUCTS:
            raise ValueError(f"element types are {', '.join(a for a, b in PRODUCTS if a == b)}, got {dtype!r}")
        major = "k_major" if kind == "linear" or element_type(dtype).bits == 8 else "n_major"
        written = out or PRODUCTS[dtype, dtype][0]
        problem = Problem(cast("Kind", kind), dtype, dtype, written, accumulate=accumulate, b_layout=major)
        for m, columns, k in parse_shapes(shapes):
            sizes = (columns,) if n is None else classes_between(*parse_range(n))
            found += [Task(problem, m, each, k) for each in sizes]
    return list(dict.fromkeys(found))


def run_tune(wanted: Sequence[Task], table: Path | None) -> Result:
    """Tune each task, print a note for each result, and write all results to `table`, a package's table, if given.

    Raises CannotMeasureError if this machine cannot measure, ArithmeticError if a result is wrong.
    """
    if table is not None:
        Target.of(table)
    torch = require_torch(TARGETS)
    place = require_device()
    found: list[Tuned] = []
    for tuned in tune_and_keep(torch, wanted, place):
        found.append(tuned)
        note(f"{len(found)} of {len(wanted)}: {tuned.task}: {tuned.gain:.3f}× the model's choice")
    if table is not None:
        Target.of(table).write(table_text(place.name, [entry_of(tuned, place) for tuned in found]).encode())
        note(f"wrote {table}")
    data = {"device": place.name, "tasks": [tuned_json(tuned) for tuned in found]}
    changed = folded("changed from the model's choice")
    columns = (*folded("task"), *right("µs", "× the model"), *changed, *right("timed", "refused"))
    return Result("tune", data, [Table(f"schedules on {place.name}", columns, [tuned_cells(tuned) for tuned in found])])


def tuned_cells(tuned: Tuned) -> tuple[str, ...]:
    """One task's result: its speed relative to the model's choice, and the changed fields."""
    found = tuned.found
    changed = differences(found.best.flat(), found.base.flat()) or "nothing"
    times = (f"{found.times[found.best] * 1e6:.1f}", f"{tuned.gain:.3f}")
    return (str(tuned.task), *times, changed, str(len(found.times)), str(len(tuned.refused)))


def tuned_json(tuned: Tuned) -> dict[str, Any]:
    """One task's result as JSON values."""
    found, task = tuned.found, tuned.task
    problem = task.problem
    return {
        "product": problem.kind,
        "a": problem.a,
        "b": problem.b,
        "out": problem.out,
        "b_layout": problem.b_layout,
        "accumulate": problem.accumulate,
        "sizes": [task.m, task.n, task.k],
        "us": round(found.times[found.best] * 1e6, 3),
        "base_us": round(found.times[found.base] * 1e6, 3),
        "schedule": found.best.flat(),
        "timed": len(found.times),
        "refused": len(tuned.refused),
    }


def differences(schedule: dict[str, Any], base: dict[str, Any]) -> str:
    """The fields in which a schedule differs from another."""
    return ", ".join(f"{name} {value}" for name, value in schedule.items() if base.get(name) != value)


def table_text(device: str, entries: Sequence[Entry]) -> str:
    """Entries as a package's table. Equal schedules of a problem share a row."""
    rows: dict[str, dict[str, Any]] = {}
    for entry in entries:
        problem = {
            name: value for name, value in entry.place.problem.items() if value is None or isinstance(value, str)
        }
        row = {"problem": problem, "aligned_output": entry.place.aligned_output, "schedule": dict(entry.schedule)}
        shared = rows.setdefault(json.dumps(row, sort_keys=True), {**row, "sizes": []})
        shared["sizes"].append(list(entry.place.sizes))
    return json.dumps({"device": device, "entries": list(rows.values())}, indent=1, ensure_ascii=False) + "\n"


def show() -> Result:
    """All kept schedules, with the reason why one is not used. Needs no GPU."""
    found = [*_own(), *(_entry_json(entry) for entry in tables())]
    place, schedule = (*folded("device", "problem"), *right("M×N×K up to")), (*folded("schedule"), *right("µs"))
    columns = (*place, *schedule, *folded("state"))
    table = Table("tuned schedules, those of this user first, then the package's", columns, [*map(_cells, found)])
    return Result("tuned", {"entries": found}, [table, *([] if found else ["none: the model chooses every schedule"])])


def _own() -> Iterator[dict[str, Any]]:
    for path, found in kept():
        if isinstance(found, UnusableEntryError):
            nothing = dict.fromkeys(("device", "problem", "sizes", "schedule", "us"))
            yield {"file": path.name, **nothing, "used": False, "reason": str(found)}
        else:
            yield {**_entry_json(found), "file": path.name}


def _entry_json(entry: Entry) -> dict[str, Any]:
    reason = status(entry, TARGETS.get(str(entry.schedule.get("target")), SM_90A))
    return {
        "file": None,
        "device": entry.place.device,
        "problem": dict(entry.place.problem),
        "sizes": list(entry.place.sizes),
        "schedule": dict(entry.schedule),
        "us": entry.microseconds,
        "used": not reason,
        "reason": reason or None,
    }


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    state = "used" if entry["used"] else f"passed over: {entry['reason']}"
    if entry["device"] is None:
        return (entry["file"], "", "", "", "", state)
    facts = entry["problem"]
    types = f"{facts.get('kind')} {facts.get('a')}×{facts.get('b')}→{facts.get('out')} {facts.get('b_layout')}"
    mode = str(facts.get("accumulate"))
    extras = f" {mode}" if mode in ("f16", "promoted") else ""
    extras += "" if facts.get("bias") is None else " + bias"
    schedule = " ".join(f"{name}={entry['schedule'][name]}" for name in FIELDS if name in entry["schedule"])
    us = "" if entry["us"] is None else f"{entry['us']:.1f}"
    return (entry["device"], types + extras, "×".join(map(str, entry["sizes"])), schedule, us, state)
