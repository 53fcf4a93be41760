"""The command line: reads arguments, calls `louver.cli.commands`, and reports a user's mistake in one line."""

from __future__ import annotations

import click

import louver
from louver.cli.benchmarks import gemm, host, kernels, ladder, model, nm, nm_ladder, plot, schedules, serve
from louver.cli.compiling import compile_
from louver.cli.completion import completion
from louver.cli.errors import CommandLine
from louver.cli.machine import advise, claims, doctor, isa, roofline, tune
from louver.cli.weights import compress, decompress, demo, inspect, prune


@click.group(
    cls=CommandLine,
    name="louver",
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="Results go to standard output; notes, progress and errors to standard error. Exit codes: 0 done, 1 failed, "
    "2 the command line is wrong.",
)
@click.version_option(louver.__version__, prog_name="louver", message="%(prog)s %(version)s")
def app() -> None:
    """Structured sparsity compiled to PTX from Python."""


@app.group()
def bench() -> None:
    """Time products and the vendor's libraries. Needs a GPU and PyTorch."""


for command in (
    doctor, advise, inspect, prune, compress, decompress, compile_, isa, claims, demo, plot, roofline, tune, completion,
):  # fmt: skip
    app.add_command(command)
for command in (gemm, schedules, ladder, kernels, host, nm, nm_ladder, model, serve):
    bench.add_command(command)


def main() -> None:
    """Run the command line on the process's arguments."""
    app(prog_name="louver")
