"""The command line: reads arguments, calls `louver.commands`, and turns what a user got wrong into one line.

Exit codes: 0 done, 1 a check found something (doctor: a core part is broken; demo: a result out of bounds),
2 the input or the arguments cannot be used.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import louver
from louver.commands.selection import EMBEDDINGS, Selection
from louver.ptx.assembler import AssemblerMissingError
from louver.ptx.sass import DisassemblerMissingError

app = typer.Typer(
    name="louver",
    help="Structured sparsity compiled to PTX from Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PIPE_COLUMNS = 160

PatternOption = Annotated[str, typer.Option("--pattern", help="Pattern, such as 2:4.")]
IncludeOption = Annotated[list[str] | None, typer.Option("--include", metavar="GLOB", help="Only these tensors.")]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="GLOB", help=f"Not these tensors. Default: {' '.join(EMBEDDINGS)}."),
]


class FloatType(StrEnum):
    """Element types that a checkpoint can be converted to."""

    f16 = "f16"
    bf16 = "bf16"
    f32 = "f32"


class ProductType(StrEnum):
    """Element types of both operands that products are compiled for."""

    f16 = "f16"
    bf16 = "bf16"
    e4m3 = "e4m3"
    e5m2 = "e5m2"
    s8 = "s8"
    u8 = "u8"


class Product(StrEnum):
    """The library's products."""

    linear = "linear"
    matmul = "matmul"


class Stage(StrEnum):
    """What `compile` prints; TTIR of Triton kernels only, encoded IR of those that are no products."""

    ttir = "ttir"
    tile = "tile"
    decomposed = "decomposed"
    encoded = "encoded"
    sched = "sched"
    ptx = "ptx"
    sass = "sass"
    all = "all"


def main() -> None:
    """Run the command line on the process's arguments."""
    app()


def terminal() -> Console:
    """Standard output; without a terminal (a pipe, a log) it is wide enough for the tables unless COLUMNS says a width."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_COLUMNS)


USER_ERRORS = (OSError, ValueError, ModuleNotFoundError, AssemblerMissingError, DisassemblerMissingError)
"""What a file, an argument or a missing optional package can cause; anything else is a bug and shows its traceback."""


@contextmanager
def one_line_errors() -> Generator[None]:
    """Files that cannot be read and values that break a rule end the command with one line and exit code 2."""
    try:
        yield
    except USER_ERRORS as error:
        line = " ".join(str(error).split())
        Console(stderr=True, soft_wrap=True).print(f"error: {line}", style="bold red", markup=False, highlight=False)
        raise typer.Exit(2) from error


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"louver {louver.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Structured sparsity compiled to PTX from Python."""


@app.command()
def doctor() -> None:
    """Say what this machine can do, and why not."""
    from louver.commands.doctor import examine, healthy, show

    facts = examine()
    show(facts, terminal())
    if not healthy(facts):
        raise typer.Exit(1)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A safetensors file, Louver's or any other.")],
    pattern: PatternOption = "2:4",
) -> None:
    """List a file's tensors: type, shape, size, and whether the pattern holds."""
    from louver.commands.inspect import inspect_file

    with one_line_errors():
        inspect_file(file, pattern, terminal())


@app.command()
def prune(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A safetensors file of dense weights.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    pattern: PatternOption = "2:4",
    dtype: Annotated[FloatType | None, typer.Option(help="Convert the pruned tensors first.")] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    compressed: Annotated[
        bool, typer.Option("--compressed/--dense", help="Write values and indices, or dense tensors with zeros.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Prune the 2-D weights of a checkpoint by magnitude; everything else is copied."""
    from louver.commands.prune import prune_file

    with one_line_errors():
        selection = Selection.of(include, exclude)
        name = None if dtype is None else dtype.value
        prune_file(source, target, pattern, name, selection, compressed=compressed, force=force, console=terminal())


@app.command(name="compile")
def compile_(
    kernel: Annotated[
        str | None,
        typer.Argument(metavar="[FILE.py:KERNEL]", help="A Triton kernel; without one, a product's problem."),
    ] = None,
    problem: Annotated[
        str | None, typer.Option(metavar="M,N,K", help="Rows of the sparse weight, tokens, inner size.")
    ] = None,
    dtype: Annotated[ProductType, typer.Option(help="Element type of both operands.")] = ProductType.f16,
    product: Annotated[Product, typer.Option(help="Which product.")] = Product.linear,
    emit: Annotated[Stage, typer.Option(help="What to print.")] = Stage.ptx,
    target: Annotated[str, typer.Option(help="The GPU target.")] = "sm_90a",
    accumulate: Annotated[str, typer.Option(help="auto, f32, f16, fast, promoted or s32.")] = "auto",
    arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TYPE", help="A kernel argument, such as a=*fp16.")
    ] = None,
    const: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A constexpr of the kernel, such as BLOCK_M=128.")
    ] = None,
    sparse: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATTERN", help="A sparse argument of the kernel, such as a=2:4.")
    ] = None,
) -> None:
    """Compile a product or a Triton kernel and print a stage of it. Needs no GPU."""
    with one_line_errors():
        if (kernel is None) == (problem is None):
            raise ValueError("compile takes a Triton kernel, FILE.py:name, or --problem M,N,K, one of the two")
        if kernel is not None:
            from louver.commands.compile_kernel import KernelArguments, kernel_text, load_kernel

            given = KernelArguments.parse(arg or (), const or (), sparse or ())
            typer.echo(kernel_text(load_kernel(kernel), given, emit.value, target))
            return
        from louver.commands.compile import compile_text, parse_sizes

        sizes = parse_sizes(str(problem))
        typer.echo(compile_text(sizes, dtype.value, product.value, emit.value, target, accumulate))


@app.command()
def demo(
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A safetensors file. Default: the demo package's.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")] = Path("louver-demo"),
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
) -> None:
    """Prune, compress, compile, run and check real weights; write the sparse file, a plot and a table."""
    from louver.commands.demo import run_demo

    with one_line_errors():
        good = run_demo(weights, out, Selection.of(include, exclude), terminal())
    if not good:
        raise typer.Exit(1)


@app.command()
def plot(
    record: Annotated[Path, typer.Argument(help="A benchmark's JSON record of products, or of the ladder.")],
    picture: Annotated[Path, typer.Argument(help="The PNG file to write.")],
) -> None:
    """Draw a benchmark record: our products beside the vendor's libraries, or one schedule's way to its speed."""
    from louver.report.records import draw

    with one_line_errors():
        typer.echo(f"wrote {draw(record, picture)}")


@app.command()
def tune(
    shapes: Annotated[str, typer.Option(metavar="LIST", help="MxNxK, separated by commas.")] = "4096x8192x8192",
    dtype: Annotated[
        str, typer.Option(metavar="LIST", help="Element types, separated by commas: f16, bf16, e4m3, int8, …")
    ] = "f16",
    kind: Annotated[Product, typer.Option(help="Which product.")] = Product.linear,
    n: Annotated[
        str | None, typer.Option("--n", metavar="A..B", help="A range of N in place of the shapes' own.")
    ] = None,
    out_dtype: Annotated[str | None, typer.Option(help="Output type. Default: what the library returns.")] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write what was found as a table for a package.")
    ] = None,
    accumulate: Annotated[str, typer.Option(help="auto, f32, f16, fast, promoted or s32.")] = "auto",
    show: Annotated[bool, typer.Option("--show", help="Only list what is kept; needs no GPU.")] = False,
) -> None:
    """Time schedules on the GPU at hand and keep the best for later calls."""
    from louver.commands import tune as command

    with one_line_errors():
        if show:
            command.show(terminal())
        else:
            wanted = command.tasks(shapes, dtype, kind.value, out_dtype, n, accumulate)
            command.run_tune(wanted, table, terminal())


bench = typer.Typer(help="Time products beside the vendor's libraries. Needs a GPU and PyTorch.", no_args_is_help=True)
app.add_typer(bench, name="bench")

DTYPES_HELP = "Element types, separated by commas: f16, bf16, e4m3, int8."

BenchOut = Annotated[Path, typer.Option(metavar="DIR", help="Where the results go.")]


@bench.command()
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


@bench.command()
def schedules(
    dtype: Annotated[str, typer.Option(metavar="LIST", help=DTYPES_HELP)] = "f16",
    shapes: Annotated[
        str | None, typer.Option(metavar="LIST", help="MxNxK, separated by commas. Default: seven large ones.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two shapes only.")] = False,
    out: BenchOut = Path("louver-bench"),
) -> None:
    """The library's schedule beside those that differ from it by one field: a table and a JSON record."""
    from louver.commands.bench import bench_schedules, problems

    with one_line_errors():
        bench_schedules(problems(dtype, shapes, quick=quick), out, terminal())


@bench.command()
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


@bench.command()
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
