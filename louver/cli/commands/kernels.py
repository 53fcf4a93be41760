"""`louver bench kernels`: times users' kernels and Triton's dense ones on the current GPU."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from louver.cli.commands.bench import picture
from louver.cli.commands.notes import note
from louver.measure.kernels import DESCRIPTION, Task, describe, load_forms, measure
from louver.measure.machine import host_header, require_torch
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.kernels import kernels_tables, summarize
from louver.measure.report.table import Result
from louver.measure.workers import Lost, share_out

LIMIT_SECONDS = 120
"""Longest time of a form at one size: before its turn on the GPU, and from then on."""


def wanted(paths: Sequence[Path], only: Sequence[str]) -> dict[tuple[Path, str], list[dict[str, Any]]]:
    """The descriptions of each form's large sizes, for the forms of these files and folders.

    Raises ValueError for a path without forms, for a form in two files, and for unknown names in `only`.
    """
    found: dict[tuple[Path, str], list[dict[str, Any]]] = {}
    names: set[str] = set()
    for path in paths:
        forms = {(file, form.name): form for file in _files(path) for form in load_forms(file).values()}
        if not forms:
            raise ValueError(f"forms are in the tuple FORMS of a Python file, got none in {path}")
        if twice := sorted(name for _, name in forms if name in names):
            raise ValueError(f"forms have names of their own, got two named {twice[0]!r}: rename one")
        names |= {name for _, name in forms}
        found |= {key: [describe(form, size) for size in range(len(form.large))] for key, form in forms.items()}
    if unknown := sorted(set(only) - names):
        raise ValueError(f"--only takes names of forms, {', '.join(sorted(names))}, got {unknown[0]!r}")
    return {key: rows for key, rows in found.items() if not only or key[1] in only}


def _files(path: Path) -> list[Path]:
    return sorted(path.glob("*.py")) if path.is_dir() else [path]


def bench_kernels(
    paths: Sequence[Path], out: Path, *, only: Sequence[str] = (), jobs: int = 8, general: bool = False
) -> Result:
    """Measure the forms; write `kernels.json` (after every row) and `kernels.png`, or `kernels-general`, into `out`.

    Raises CannotMeasureError if this machine cannot measure, and ValueError like `wanted`.
    """
    torch = require_torch()
    described = wanted(paths, only)
    facts = host_header(torch)
    facts["versions"] |= {"triton": sys.modules["triton"].__version__}
    rows: list[dict[str, Any]] = []
    record: dict[str, Any] = {"schema": SCHEMA, "kind": "kernels", **facts, "protocol": DESCRIPTION, "general": general}
    path = out / ("kernels-general.json" if general else "kernels.json")
    tasks = [Task(file, form, size, general) for (file, form), each in described.items() for size in range(len(each))]
    with tempfile.TemporaryDirectory() as cache:
        environment = {"LOUVER_CACHE_DIR": cache}
        for task, found in share_out(tasks, measure, jobs=jobs, limit=LIMIT_SECONDS, environment=environment):
            more = {"failed": found.reason} if isinstance(found, Lost) else found
            rows.append(described[task.file, task.form][task.size] | more)
            record |= {"rows": rows, "summary": summarize(rows)}
            write_record(path, record)
            note(f"{len(rows)} of {len(tasks)}: {progress_line(rows[-1])}")
    note(f"wrote {path}")
    if any("times_dense" in row for row in rows):
        note(picture(path, path.with_suffix(".png")))
    return Result("kernels", record, kernels_tables(rows, f"users' kernels on {facts['device']}"))


def progress_line(row: Mapping[str, Any]) -> str:
    """A row in a line."""
    what = f"{row['form']} {'×'.join(map(str, row['tile']))}"
    for problem in ("refused", "failed"):
        if problem in row:
            return f"{what} {problem}: {row[problem]}"
    beside = f", {row['times_dense']:.2f} × Triton" if "times_dense" in row else f", no dense time: {row['triton']}"
    return f"{what}: {row['louver_us']:.1f} µs by {row['family']}{beside}"
