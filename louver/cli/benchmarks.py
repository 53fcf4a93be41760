"""Commands that measure, and draw what was measured: bench …, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from louver.cli.output import one_line_errors, terminal

BenchOut = Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")]

DTYPES_HELP = "Element types, separated by commas: f16, bf16, e4m3, int8."


def gemm(
    dtype: Annotated[str, typer.Option(metavar="LIST", help=DTYPES_HELP)] = "f16,bf16",
    shapes: Annotated[
        str | None, typer.Option(metavar="LIST", help="MxNxK, separated by commas. Default: seven large ones.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two shapes only.")] = False,
    sustained: Annotated[
        bool, typer.Option("--sustained", help="Also seconds of load, with clock and power, for three shapes.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop before this time is up; the record says what is missing."),
    ] = None,
    accumulate: Annotated[
        str, typer.Option(help="How our product accumulates: auto, or f16 or promoted, into a record of its own.")
    ] = "auto",
    out: BenchOut = Path("louver-bench"),
) -> None:
    """Products of large matrices beside cuBLAS and cuSPARSELt: a table, a JSON record and a picture."""
    from louver.commands.bench import bench_gemm, problems

    with one_line_errors():
        wanted = problems(dtype, shapes, quick=quick, accumulate=accumulate)
        bench_gemm(wanted, out, terminal(), sustained=sustained, budget=budget)


def schedules(
    dtype: Annotated[str, typer.Option(metavar="LIST", help=DTYPES_HELP)] = "f16",
    shapes: Annotated[
        str | None, typer.Option(metavar="LIST", help="MxNxK, separated by commas. Default: seven large ones.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two shapes only.")] = False,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help='Alternatives with this in their names only, such as "tile_m 256".')
    ] = "",
    out: BenchOut = Path("louver-bench"),
) -> None:
    """The library's schedule beside those that differ from it by one field: a table and a JSON record."""
    from louver.commands.bench import bench_schedules, problems

    with one_line_errors():
        bench_schedules(problems(dtype, shapes, quick=quick), out, terminal(), only=only)


def ladder(
    dtype: Annotated[
        str, typer.Option(metavar="LIST", help="Element types, separated by commas: e4m3, f16.")
    ] = "e4m3,f16",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter bursts.")] = False,
    out: BenchOut = Path("louver-bench"),
) -> None:
    """From a plain schedule to ours, one field at a time, at 4096×8192×8192: tables, a JSON record and a picture."""
    from louver.commands.ladder import bench_ladder, dtypes

    with one_line_errors():
        bench_ladder(dtypes(dtype), out, terminal(), quick=quick)


def host(
    dtype: Annotated[str, typer.Option(metavar="LIST", help=DTYPES_HELP)] = "f16",
    out: BenchOut = Path("louver-bench"),
) -> None:
    """Host time of a warm call, in every form, and of the runtime's parts: a table and a JSON record."""
    from louver.bench.host import problems
    from louver.bench.problems import parse_dtypes
    from louver.commands.bench import bench_host

    with one_line_errors():
        bench_host(problems(parse_dtypes(dtype)), out, terminal())


def plot(
    record: Annotated[Path, typer.Argument(help="A benchmark's JSON record of products, or of the ladder.")],
    picture: Annotated[Path, typer.Argument(help="The PNG file to write.")],
) -> None:
    """Draw a benchmark record: our products beside the vendor's libraries, or one schedule's way to its speed."""
    from louver.report.records import draw

    with one_line_errors():
        typer.echo(f"wrote {draw(record, picture)}")
