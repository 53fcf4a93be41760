"""The command line: reads arguments, calls `louver.commands`, and turns what a user got wrong into one line.

Exit codes: 0 done, 1 a check found something (doctor: a core part is broken; demo: a result out of bounds),
2 the input or the arguments cannot be used.
"""

from __future__ import annotations

from typing import Annotated

import typer

import louver
from louver.cli.benchmarks import gemm, host, ladder, plot, schedules
from louver.cli.compiling import compile_
from louver.cli.machine import doctor, tune
from louver.cli.weights import demo, inspect, prune

app = typer.Typer(
    name="louver",
    help="Structured sparsity compiled to PTX from Python.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

bench = typer.Typer(help="Time products beside the vendor's libraries. Needs a GPU and PyTorch.", no_args_is_help=True)


def main() -> None:
    """Run the command line on the process's arguments."""
    app()


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


for command in (doctor, inspect, prune):
    app.command()(command)
app.command(name="compile")(compile_)
for command in (demo, plot, tune):
    app.command()(command)
app.add_typer(bench, name="bench")
for command in (gemm, schedules, ladder, host):
    bench.command()(command)
