"""`louver bench`: our products beside the vendor's libraries, on the GPU at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from louver.bench.budget import Budget
from louver.bench.gemm import Measurement, measure
from louver.bench.host import HostTimes, measure_host
from louver.bench.machine import header, host_header, require_torch
from louver.bench.problems import OUTPUTS, QUICK, SHAPES, SUSTAINED, GemmProblem, Shape, parse_dtypes, parse_shapes
from louver.bench.protocol import Protocol
from louver.bench.record import gemm_record, host_record, write_record
from louver.bench.schedules import Rung, measure_schedules
from louver.report.gemm import CONTENDERS, LABELS, GemmRecord
from louver.report.gemm_table import gemm_table
from louver.report.style import plain_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


REASONS = 2
"""Reasons for a missing library that a line of progress has room for; the record has all."""


def problems(dtypes: str, shapes: str | None, *, quick: bool, accumulate: str = "auto") -> list[GemmProblem]:
    """The problems that the options ask for. Raises ValueError with the rule that they break."""
    if shapes is not None and quick:
        raise ValueError("--quick chooses the shapes: give it or --shapes, not both")
    chosen: tuple[Shape, ...] = parse_shapes(shapes) if shapes is not None else QUICK if quick else SHAPES
    kinds = [(dtype, out) for dtype in parse_dtypes(dtypes) for out in OUTPUTS[dtype]]
    return [GemmProblem(*shape, dtype, out, accumulate) for dtype, out in kinds for shape in chosen]


def forbid_short_sums(torch: Any) -> None:
    """Equal accuracy for all: 16-bit partial sums would make PyTorch's dense product less exact than the sparse ones."""
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def bench_gemm(
    wanted: Sequence[GemmProblem], out: Path, console: Console, *, sustained: bool, budget: float | None = None
) -> None:
    """Measure the problems, show tables, write `gemm.json` (after every problem) and `gemm.png` into `out`.

    sustained: also under sustained load, for the problems of `SUSTAINED`. budget: seconds for all of it, see `Budget`; the
    record names the problems that they did not suffice for. Problems that accumulate in another way than usual, all in the
    same, go into files of their own: `gemm-f16.json`, say.
    Raises CannotMeasureError where this machine cannot, ArithmeticError when a result of ours is wrong.
    """
    time_left = Budget(budget)
    torch = require_torch()
    forbid_short_sums(torch)
    protocol, facts = Protocol(), header(torch)
    rows: list[Measurement] = []
    path = out / f"{record_name(wanted)}.json"
    for index, problem in enumerate(wanted):
        if not time_left.suffices():
            missing = [str(left) for left in wanted[index:]]
            write_record(path, gemm_record(facts, protocol, rows, missing))
            console.print(f"no time left for {', '.join(missing)}", markup=False, highlight=False)
            break
        with time_left.spending() as spent:
            rows.append(measure(torch, problem, protocol, sustained=sustained and problem.shape in SUSTAINED))
            write_record(path, gemm_record(facts, protocol, rows))
            torch.cuda.empty_cache()
        console.print(progress_line(rows[-1], spent.seconds), markup=False, highlight=False)
    show(rows, facts, protocol, console)
    console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)
    if rows:
        console.print(picture(path, path.with_suffix(".png")), markup=False, highlight=False, soft_wrap=True)


def record_name(wanted: Sequence[GemmProblem]) -> str:
    """The record's name. Raises ValueError for problems that accumulate in different ways: they are not compared."""
    modes = {problem.accumulate for problem in wanted}
    if len(modes) > 1:
        raise ValueError(f"a record has one way to accumulate, got {', '.join(sorted(modes))}: measure them apart")
    return "gemm" if modes <= {"auto"} else f"gemm-{modes.pop()}"


def bench_host(wanted: Sequence[GemmProblem], out: Path, console: Console) -> None:
    """Measure host times, show a table, write `host.json` into `out`.

    Raises CannotMeasureError where this machine cannot, ArithmeticError when a result of ours is wrong.
    """
    torch = require_torch()
    forbid_short_sums(torch)
    facts = host_header(torch)
    found = measure_host(torch, wanted)
    console.print(host_table(found, f"host time of a warm call, {facts['cpu']}, {facts['device']}"))
    for name, reason in found.missing.items():
        console.print(f"not measured: {name}: {reason}", markup=False, highlight=False)
    path = write_record(out / "host.json", host_record(facts, found))
    console.print(f"wrote {path}", markup=False, highlight=False, soft_wrap=True)


def bench_schedules(wanted: Sequence[GemmProblem], out: Path, console: Console, *, only: str = "") -> None:
    """Time the library's schedule beside its neighbours, show tables, write `schedules.json` into `out`.

    only: what an alternative's name must have in it.
    Raises CannotMeasureError where this machine cannot, ArithmeticError when a schedule computes wrongly.
    """
    torch = require_torch()
    protocol, facts = Protocol(), header(torch)
    rows: list[dict[str, Any]] = []
    for problem in wanted:
        rungs = measure_schedules(torch, problem, protocol, only=only)
        console.print(schedules_table(problem, rungs, f"{problem} on {facts['device']}"))
        types = {"dtype": problem.dtype, "out": problem.out}
        rows.append({"shape": list(problem.shape), **types, "schedules": [_rung(r) for r in rungs]})
        write_record(out / "schedules.json", {**facts, "protocol": protocol.describe(), "rows": rows})
        torch.cuda.empty_cache()


def _rung(rung: Rung) -> dict[str, Any]:
    return {"change": rung.change, "us": round(rung.seconds * 1e6, 3), "schedule": asdict(rung.schedule)}


def schedules_table(problem: GemmProblem, rungs: Sequence[Rung], title: str) -> Table:
    """Schedules, fastest first, and their speed in terms of the library's choice."""
    table = plain_table(title)
    table.add_column("changed from the library's choice")
    for heading in ("TFLOP/s", "× chosen"):
        table.add_column(heading, justify="right")
    chosen = next(rung.seconds for rung in rungs if not rung.change)
    for rung in rungs:
        speed = f"{rung.tflops(problem):.0f}"
        table.add_row(rung.change or "(nothing)", speed, f"{chosen / rung.seconds:.3f}")
    return table


def progress_line(measurement: Measurement, seconds: float) -> str:
    """One problem's result in a line; why a library is missing is said."""
    row = measurement.row
    speeds = [f"{LABELS[name]} {row.tflops(name) or 0:.0f}" for name in CONTENDERS if name in row.times_us]
    missing = [f"{name}: {_absence(note)}" for name, note in measurement.notes.items() if name not in row.times_us]
    shape = "×".join(map(str, row.shape))
    return "; ".join([f"{shape} {row.types}: {', '.join(speeds)} TFLOP/s ({seconds:.0f} s)", *missing])


def _absence(note: Mapping[str, Any]) -> str:
    """Why a contender with these notes was not timed: its own failure, else those of its variants."""
    reasons = [str(note["failed"])] if "failed" in note else [f"{k} ({v})" for k, v in note.items() if ": " in k]
    return ", ".join(reasons[:REASONS])


def show(rows: Sequence[Measurement], facts: dict[str, Any], protocol: Protocol, console: Console) -> None:
    """Print the tables."""
    record = GemmRecord(facts["device"], facts["versions"], protocol.describe(), tuple(m.row for m in rows))
    console.print(gemm_table(record, f"linear, 2:4, dense-equivalent, bursts on {record.device}"))
    long = [row for row in rows if row.sustained]
    if long:
        console.print(sustained_table(long, f"the same under sustained load on {record.device}"))
    if any(row.n_major is not None for row in rows):
        console.print(n_major_table(rows, f"matmul of 8-bit operands that are contiguous along N, on {record.device}"))


def n_major_table(rows: Sequence[Measurement], title: str) -> Table:
    """What the transposing copy costs beside the product."""
    table = plain_table(title)
    table.add_column("M×N×K", justify="right", no_wrap=True)
    table.add_column("type")
    for heading in ("transposing copy µs", "GB/s", "product µs", "copy's part"):
        table.add_column(heading, justify="right")
    for measurement in rows:
        row, taken = measurement.row, measurement.n_major
        if taken is not None:
            times = (f"{taken.copy_us:.1f}", f"{taken.gigabytes_per_second:.0f}", f"{taken.product_us:.1f}")
            table.add_row("×".join(map(str, row.shape)), row.types, *times, f"{taken.share:.0%}")
    return table


def sustained_table(rows: Sequence[Measurement], title: str) -> Table:
    """Speed, energy, clock and power of each contender under sustained load."""
    table = plain_table(title)
    table.add_column("M×N×K", justify="right", no_wrap=True)
    for heading in ("type", "contender"):
        table.add_column(heading)
    for heading in ("TFLOP/s", "TFLOP/J", "MHz", "W"):
        table.add_column(heading, justify="right")
    for measurement in rows:
        row = measurement.row
        for name, taken in measurement.sustained.items():
            energy = taken.tflop_per_joule(measurement.flops)
            numbers = [(energy, ".2f"), (taken.clock_mhz, ".0f"), (taken.power_w, ".0f")]
            cells = ["–" if value is None else format(value, form) for value, form in numbers]
            speed = f"{taken.tflops(measurement.flops):.0f}"
            table.add_row("×".join(map(str, row.shape)), row.types, LABELS[name], speed, *cells)
    return table


def host_table(found: HostTimes, title: str) -> Table:
    """Host times in the order of measurement."""
    table = plain_table(title)
    for heading in ("type", "call"):
        table.add_column(heading)
    for heading in ("µs", "least", "90 %"):
        table.add_column(heading, justify="right")
    for row in found.times:
        table.add_row(row.types, row.name, *(f"{us:.2f}" for us in (row.us, row.least_us, row.p90_us)))
    return table


def picture(record: Path, path: Path) -> str:
    """Draw a record; what was written, or why nothing was: a measurement is not lost for want of a picture."""
    from louver.report.gemm import read_gemm
    from louver.report.gemm_plot import plot_gemm

    try:
        return f"wrote {plot_gemm(read_gemm(record), path)}"
    except ModuleNotFoundError as error:
        return f"no picture ({error}); draw it elsewhere: louver plot {record} {path}"
