"""The commands `bench …`, which measure, and `plot`, which draws."""

from __future__ import annotations

from pathlib import Path

import click

from louver.cli.commands.notes import note
from louver.cli.compiling import TYPES
from louver.cli.output import PATH, result_command
from louver.measure.report.table import Result

DTYPES_HELP = "Element types, separated by commas: f16, bf16, e4m3, int8, f32 (as tf32)."

shapes_option = click.option("--shapes", metavar="LIST", help="MxNxK, separated by commas.")
suite_option = click.option(
    "--suite",
    metavar="NAME",
    help="Shapes: published (seven large ones, the default), quick (two), models (of published models), tokens (1 to 256) or "
    "uneven (tokens that no tile divides).",
)
budget_option = click.option(
    "--budget", type=float, metavar="SECONDS", help="Stop before this time ends. The record names missing problems."
)
length_option = click.option(
    "--length", type=click.IntRange(1), metavar="L", default=32, help="Rows of the weight that keep the same elements."
)
out_option = click.option(
    "--out", type=PATH, metavar="DIR", default=Path("louver-bench"), help="Folder for records and pictures."
)


@click.command()
@click.option("--dtype", metavar="LIST", default="f16,bf16", help=DTYPES_HELP)
@shapes_option
@suite_option
@click.option(
    "--continue",
    "begun",
    type=PATH,
    metavar="RECORD",
    help="Continue a record of this GPU, these versions and these shapes: keep its rows, measure the missing ones.",
)
@click.option("--sustained", is_flag=True, help="Also time three shapes for seconds, with clock and power.")
@budget_option
@click.option(
    "--accumulate",
    metavar="HOW",
    default="auto",
    help="How Louver's product accumulates: auto; f16 or promoted, with a separate record.",
)
@out_option
@result_command
def gemm(
    dtype: str,
    shapes: str | None,
    suite: str | None,
    begun: Path | None,
    sustained: bool,
    budget: float | None,
    accumulate: str,
    out: Path,
) -> Result:
    """Time large products of Louver, cuBLAS and cuSPARSELt. Writes a record and a picture."""
    from louver.cli.commands.bench import bench_gemm, problems

    wanted = problems(dtype, shapes, suite, accumulate=accumulate)
    return bench_gemm(wanted, out, sustained=sustained, budget=budget, suite=suite, begun=begun)


@click.command()
@click.option("--dtype", metavar="LIST", default="f16", help=DTYPES_HELP)
@shapes_option
@suite_option
@click.option(
    "--only", metavar="TEXT", default="", help='Only alternatives with this text in their names, such as "tile_m 256".'
)
@out_option
@result_command
def schedules(dtype: str, shapes: str | None, suite: str | None, only: str, out: Path) -> Result:
    """Time the library's schedule and others that differ by one field. Writes a record."""
    from louver.cli.commands.bench import bench_schedules, problems

    return bench_schedules(problems(dtype, shapes, suite), out, only=only)


@click.command()
@click.option("--dtype", metavar="LIST", default="e4m3,f16", help="Element types, separated by commas: e4m3, f16.")
@click.option("--quick", is_flag=True, help="Fewer and shorter bursts.")
@out_option
@result_command
def ladder(dtype: str, quick: bool, out: Path) -> Result:
    """Time schedules from a plain one to Louver's at 4096x8192x8192, field by field. Writes a record and a picture."""
    from louver.cli.commands.bench import bench_ladder, dtypes

    return bench_ladder(dtypes(dtype), out, quick=quick)


@click.command()
@length_option
@click.option("--dtype", type=click.Choice(["f32", "bf16", "f16"]), default="f32", help="Element type.")
@click.option(
    "--patterns", metavar="LIST", default="", help="N:M@L or N:M@VL, separated by commas. Default: the paper's four."
)
@click.option("--quick", is_flag=True, help="One weight, 512 and 4,096 tokens.")
@shapes_option
@budget_option
@out_option
@result_command
def nm(
    length: int, dtype: str, patterns: str, quick: bool, shapes: str | None, budget: float | None, out: Path
) -> Result:
    """Time products of vectors N:M@L and cuBLAS, by default at all points of NM-SpMM. Writes a record and a picture."""
    from louver.cli.commands.nm import bench_nm
    from louver.formats.pattern import Pattern
    from louver.measure.problems import parse_shapes

    if shapes is not None and quick:
        raise click.UsageError("--quick chooses the shapes: give it or --shapes, not both")
    chosen = tuple(map(Pattern.parse, patterns.split(","))) if patterns else ()
    sizes = parse_shapes(shapes) if shapes else ()
    return bench_nm(length, out, quick=quick, dtype=dtype, chosen=chosen, shapes=sizes, budget=budget)


@click.command("nm-ladder")
@length_option
@click.option("--quick", is_flag=True, help="Two of six cases.")
@out_option
@result_command
def nm_ladder(length: int, quick: bool, out: Path) -> Result:
    """Time the versions of the paper NM-SpMM, as schedules, and cuBLAS f32. Writes a record and a picture."""
    from louver.cli.commands.nm import bench_nm_ladder

    return bench_nm_ladder(length, out, quick=quick)


@click.command()
@click.argument("paths", metavar="PATH...", type=PATH, nargs=-1, required=True)
@click.option("--only", metavar="NAME", multiple=True, help="Only this form. May be repeated.")
@click.option(
    "--jobs", type=click.IntRange(1), default=8, help="Processes that compile in parallel and use the GPU in turns."
)
@click.option("--general", is_flag=True, help="Run all kernels by register tiles. Has a separate record.")
@out_option
@result_command
def kernels(paths: tuple[Path, ...], only: tuple[str, ...], jobs: int, general: bool, out: Path) -> Result:
    """Time users' kernels, Triton's dense ones and cuBLAS. Writes a record and a picture.

    PATH is a Python file with a tuple FORMS of louver.measure.forms, or a folder of such files.
    """
    from louver.cli.commands.kernels import bench_kernels

    return bench_kernels(paths, out, only=only, jobs=jobs, general=general)


@click.command()
@click.option("--dtype", metavar="LIST", default="f16", help=DTYPES_HELP)
@out_option
@result_command
def host(dtype: str, out: Path) -> Result:
    """Time warm calls on the host, in all forms, and the runtime's parts. Writes a record."""
    from louver.cli.commands.bench import bench_host
    from louver.measure.host import problems
    from louver.measure.problems import parse_dtypes

    return bench_host(problems(parse_dtypes(dtype)), out)


@click.command()
@click.option("--blocks", type=click.IntRange(1), default=4, help="Blocks of the stack; the whole model has 32.")
@click.option("--head", is_flag=True, help="Also the head, which gives the scores of each sequence's next token.")
@click.option("--prefill", metavar="SxT", default="8x2048", help="Sequences and tokens of each.")
@click.option("--decode", metavar="LIST", default="1,16,64", help="Numbers of sequences, one token each.")
@click.option("--modes", metavar="LIST", default="compiled,eager", help="eager, compiled or both.")
@budget_option
@out_option
@result_command
def model(blocks: int, head: bool, prefill: str, decode: str, modes: str, budget: float | None, out: Path) -> Result:
    """Time blocks of Llama 3 8B's shapes, dense and sparse, in bf16 and e4m3. Writes a record and a picture.

    Also memory, joules a token and the seconds of the swap, and SmolLM2's shapes, which gain nothing.
    """
    from louver.cli.commands.model import bench_model

    return bench_model(blocks, out, head=head, prefill=prefill, decode=decode, modes=modes, budget=budget)


@click.command()
@click.option(
    "--tokens", metavar="LIST", default="", help="Numbers of tokens. Default: those that vLLM captures, 1 to 512."
)
@budget_option
@out_option
@result_command
def serve(tokens: str, budget: float | None, out: Path) -> Result:
    """Time the products of a layer of Llama 3 8B as vLLM calls them, under CUDA graphs. Writes a record and a picture.

    Dense and sparse, in bf16 and e4m3: joined q, k and v; o; joined gate and up with SiLU; down; and all four.
    """
    from louver.cli.commands.model import bench_serve

    return bench_serve(tokens, out, budget=budget)


@click.command()
@click.argument("paths", metavar="[RECORD] PICTURE", type=PATH, nargs=-1, required=True)
@click.option(
    "--schedule",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Draw a product's kernel over time, with this value in its schedule, such as stages=3. May be repeated.",
)
@click.option(
    "--problem",
    metavar="M,N,K",
    help="Draw the kernel of these sizes over time. Default: 4096,4096,4096 with --schedule.",
)
@click.option("--dtype", metavar="TYPE", default="f16", help=f"Element type of both operands: {', '.join(TYPES)}.")
def plot(paths: tuple[Path, ...], schedule: tuple[str, ...], problem: str | None, dtype: str) -> None:
    """Draw a record, or a schedule.

    Draws the JSON RECORD of `louver bench gemm`, `ladder`, `kernels`, `nm`, `nm-ladder`, `model`, `serve`, accuracy or
    `louver advise --model` as the PNG file PICTURE. With --schedule or --problem: draws a product's kernel over time as
    the SVG file PICTURE. Needs no GPU.
    """
    if schedule or problem is not None:
        from louver.cli.commands.schedule import draw as draw_schedule

        if len(paths) != 1:
            raise ValueError(f"a schedule is drawn without a record: give one PICTURE, got {len(paths)} files")
        written = draw_schedule(problem or "4096,4096,4096", dtype, schedule, paths[0])
    else:
        from louver.measure.report.records import draw

        if len(paths) != 2:
            raise ValueError(
                f"a record is drawn as a picture: give RECORD and PICTURE, got {len(paths)} of them. A schedule needs --schedule or "
                "--problem"
            )
        written = draw(*paths)
    note(f"wrote {written}")
