"""`louver bench`: times Louver's products and the vendor's libraries on the current GPU."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from louver.cli.commands.notes import note
from louver.formats.extras import explained
from louver.measure.gemm import measure
from louver.measure.host import HostTimes, measure_host
from louver.measure.ladder import QUICK, ladder, measure_ladder
from louver.measure.launches import compile_ahead
from louver.measure.machine import forbid_short_sums, header, host_header, require_torch, tf32_products
from louver.measure.measurement import Measurement
from louver.measure.problems import OUTPUTS, SUSTAINED, GemmProblem, parse_dtypes, parse_shapes, suite
from louver.measure.protocol import SHORT, Budget, Protocol, spread_out
from louver.measure.record import gemm_record, host_record, read_continued, write_record
from louver.measure.report.gemm import LABELS, PRODUCTS, GemmRecord, gemm_table
from louver.measure.report.header import SCHEMA
from louver.measure.report.ladder import ladder_of, ladder_tables
from louver.measure.report.records import draw
from louver.measure.report.table import Column, Result, Table, folded, right
from louver.measure.schedules import Rung, measure_schedules
from louver.runtime.device import require_device

REASONS = 2
"""Most reasons for a missing library in a progress line. The record has all reasons."""


def problems(
    dtypes: str, shapes: str | None, name: str | None = None, *, accumulate: str = "auto"
) -> list[GemmProblem]:
    """The problems of these shapes, or of a suite. Raises ValueError with the broken rule."""
    if shapes is not None and name is not None:
        raise ValueError("--suite chooses the shapes: give it or --shapes, not both")
    chosen = suite(name or "published") if shapes is None else parse_shapes(shapes)
    kinds = [(dtype, out) for dtype in parse_dtypes(dtypes) for out in OUTPUTS[dtype]]
    return [GemmProblem(*shape, dtype, out, accumulate) for dtype, out in kinds for shape in chosen]


def bench_gemm(
    wanted: Sequence[GemmProblem],
    out: Path,
    *,
    sustained: bool,
    budget: float | None = None,
    suite: str | None = None,
    begun: Path | None = None,
) -> Result:
    """Measure the problems; write `gemm.json` (after every problem) and `gemm.png` into `out`.

    sustained: also measure the shapes of `SUSTAINED` under sustained load. suite: its name; the bursts of suites are
    shorter. budget: seconds for everything, see `Budget`. The order of the problems spreads over their list, and the
    record names the missing ones. begun: a record to continue, see `read_continued`. Rows that it lacks are measured
    and get the run's date.
    A suite, or another way to accumulate, has separate files: `gemm-tokens.json`, `gemm-f16.json`. Raises
    CannotMeasureError if this machine cannot measure, ArithmeticError if a result of Louver is wrong.
    """
    time_left = Budget(budget)
    torch = require_torch()
    forbid_short_sums(torch)
    protocol, facts = SHORT if suite else Protocol(), header(torch)
    taken, date = dict[int, Measurement](), ""
    if begun is not None:
        found = read_continued(begun, facts, protocol, wanted)
        taken |= found.taken
        date, facts = facts["date"], {**facts, "date": found.date}
    path = out / f"{record_name(wanted, suite)}.json"
    left = [index for index in spread_out(len(wanted)) if index not in taken]
    began = time.perf_counter()
    kernels = compile_ahead([wanted[index] for index in left], require_device())
    note(f"kernels compiled ahead: {kernels}, {time.perf_counter() - began:.0f} s")
    while left:
        if not time_left.suffices():
            note(f"no time left for {', '.join(str(wanted[index]) for index in left)}")
            break
        index = left.pop(0)
        problem = wanted[index]
        with time_left.spending() as spent, tf32_products(torch):
            measurement = measure(torch, problem, protocol, sustained=sustained and problem.shape in SUSTAINED)
            torch.cuda.empty_cache()
            taken[index] = replace(measurement, date=date)
            # After each problem, in case the run is ended.
            write_record(path, _record(facts, protocol, wanted, taken))
        note(progress_line(measurement, spent.seconds))
    rows = [taken[index] for index in sorted(taken)]
    record = _record(facts, protocol, wanted, taken)
    # Also if nothing was measured.
    write_record(path, record)
    note(f"wrote {path}")
    if rows:
        note(picture(path, path.with_suffix(".png")))
    return Result("gemm", record, gemm_tables(rows, facts, protocol))


def _record(
    facts: Mapping[str, Any], protocol: Protocol, wanted: Sequence[GemmProblem], taken: Mapping[int, Measurement]
) -> dict[str, Any]:
    missing = [str(problem) for index, problem in enumerate(wanted) if index not in taken]
    return gemm_record(facts, protocol, [taken[index] for index in sorted(taken)], missing)


def record_name(wanted: Sequence[GemmProblem], suite: str | None = None) -> str:
    """The record's name. Raises ValueError for several ways to accumulate, because they are not comparable."""
    modes = {problem.accumulate for problem in wanted}
    if len(modes) > 1:
        raise ValueError(f"a record has one way to accumulate, got {', '.join(sorted(modes))}: measure them apart")
    return "-".join(["gemm", *([] if suite is None else [suite]), *sorted(modes - {"auto"})])


def bench_host(wanted: Sequence[GemmProblem], out: Path) -> Result:
    """Measure host times; write `host.json` into `out`.

    Raises CannotMeasureError if this machine cannot measure, ArithmeticError if a result of Louver is wrong.
    """
    torch = require_torch()
    forbid_short_sums(torch)
    facts = host_header(torch)
    with tf32_products(torch):
        found = measure_host(torch, wanted)
    record = host_record(facts, found)
    note(f"wrote {write_record(out / 'host.json', record)}")
    table = host_table(found, f"host time of a warm call, {facts['cpu']}, {facts['device']}")
    missing = [f"not measured: {name}: {reason}" for name, reason in found.missing.items()]
    return Result("host", record, [table, *missing])


def bench_schedules(wanted: Sequence[GemmProblem], out: Path, *, only: str = "") -> Result:
    """Time the library's schedule and its neighbours; write `schedules.json` (after every problem) into `out`.

    only: text in the alternatives' names. Raises CannotMeasureError, or ArithmeticError if a result is wrong.
    """
    torch = require_torch()
    protocol, facts = Protocol(), header(torch)
    rows: list[dict[str, Any]] = []
    tables: list[Table] = []
    record: dict[str, Any] = {**facts, "protocol": protocol.describe(), "rows": rows}
    for problem in wanted:
        rungs = measure_schedules(torch, problem, protocol, only=only)
        tables.append(schedules_table(problem, rungs, f"{problem} on {facts['device']}"))
        types = {"dtype": problem.dtype, "out": problem.out}
        found = [{"change": r.change, "us": round(r.seconds * 1e6, 3), "schedule": r.schedule.flat()} for r in rungs]
        rows.append({"shape": list(problem.shape), **types, "schedules": found})
        note(f"wrote {write_record(out / 'schedules.json', record)}: {problem}")
        torch.cuda.empty_cache()
    return Result("schedules", record, tables)


def schedules_table(problem: GemmProblem, rungs: Sequence[Rung], title: str) -> Table:
    """Schedules, fastest first, with their speed relative to the library's choice."""
    changed = folded("changed from the library's choice")
    chosen = next(rung.seconds for rung in rungs if not rung.change)
    rows = [
        (rung.change or "(nothing)", f"{rung.tflops(problem):.0f}", f"{chosen / rung.seconds:.3f}") for rung in rungs
    ]
    return Table(title, (*changed, *right("TFLOP/s", "× chosen")), rows)


def progress_line(measurement: Measurement, seconds: float) -> str:
    """One problem's result in a line, with the reasons for missing libraries."""
    row = measurement.row
    speeds = [f"{LABELS[name]} {row.tflops(name) or 0:.0f}" for name in PRODUCTS if name in row.times_us]
    missing = [f"{name}: {_absence(note)}" for name, note in measurement.notes.items() if name not in row.times_us]
    shape = "×".join(map(str, row.shape))
    return "; ".join([f"{shape} {row.types}: {', '.join(speeds)} TFLOP/s ({seconds:.1f} s)", *missing])


def _absence(note: Mapping[str, Any]) -> str:
    """Why a contender with these notes was not timed: its failure, or the failures of its variants."""
    reasons = [str(note["failed"])] if "failed" in note else [f"{k} ({v})" for k, v in note.items() if ": " in k]
    return ", ".join(reasons[:REASONS])


def gemm_tables(rows: Sequence[Measurement], facts: dict[str, Any], protocol: Protocol) -> list[Table]:
    """Tables of products and, if measured, of sustained load and of transposing copies."""
    record = GemmRecord(facts["device"], facts["versions"], protocol.describe(), tuple(m.row for m in rows))
    tables = [gemm_table(record, f"linear, 2:4 (f32: 1:2), dense-equivalent, bursts on {record.device}")]
    long = [row for row in rows if row.sustained]
    if long:
        tables.append(sustained_table(long, f"the same under sustained load on {record.device}"))
    if any(row.n_major is not None for row in rows):
        tables.append(n_major_table(rows, f"matmul of 8-bit operands that are contiguous along N, on {record.device}"))
    return tables


def n_major_table(rows: Sequence[Measurement], title: str) -> Table:
    """Times of the transposing copy and of the product."""
    numbers = right("transposing copy µs", "GB/s", "product µs", "copy's part")
    columns = (*right("M×N×K"), Column("type"), *numbers)
    shown: list[tuple[str, ...]] = []
    for measurement in rows:
        row, taken = measurement.row, measurement.n_major
        if taken is not None:
            times = (f"{taken.copy_us:.1f}", f"{taken.gigabytes_per_second:.0f}", f"{taken.product_us:.1f}")
            shown.append(("×".join(map(str, row.shape)), row.types, *times, f"{taken.share:.0%}"))
    return Table(title, columns, shown)


def sustained_table(rows: Sequence[Measurement], title: str) -> Table:
    """Speed, energy, clock and power of each contender under sustained load."""
    texts = (*right("M×N×K"), Column("type"), Column("contender"))
    shown: list[tuple[str, ...]] = []
    for measurement in rows:
        row = measurement.row
        for name, taken in measurement.sustained.items():
            energy = taken.tflop_per_joule(measurement.flops)
            numbers = [(energy, ".2f"), (taken.clock_mhz, ".0f"), (taken.power_w, ".0f")]
            cells = ["–" if value is None else format(value, form) for value, form in numbers]
            speed = f"{taken.tflops(measurement.flops):.0f}"
            shown.append(("×".join(map(str, row.shape)), row.types, LABELS[name], speed, *cells))
    return Table(title, (*texts, *right("TFLOP/s", "TFLOP/J", "MHz", "W")), shown)


def host_table(found: HostTimes, title: str) -> Table:
    """Host times in the order of measurement."""
    rows = [(row.name, row.types, *(f"{us:.2f}" for us in (row.us, row.least_us, row.p90_us))) for row in found.times]
    return Table(title, (*folded("call"), Column("type"), *right("µs", "least", "90 %")), rows)


def picture(record: Path, path: Path) -> str:
    """Draw a record. Returns a note: the written file, or the missing Matplotlib. The record is kept in both cases."""
    try:
        return f"wrote {draw(record, path)}"
    except ModuleNotFoundError as error:
        return f"no picture ({explained(error)}); draw it elsewhere: louver plot {record} {path}"


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
