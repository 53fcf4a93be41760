"""Commands on files of weights: inspect, prune, demo."""

from __future__ import annotations

from pathlib import Path

import click

from louver.cli.options import FLOATS, exclude_option, include_option, pattern_option
from louver.cli.output import PATH, result_command
from louver.commands.selection import Selection
from louver.report.result import Result


@click.command()
@click.argument("file", type=PATH)
@pattern_option
@result_command
def inspect(file: Path, pattern: str) -> Result:
    """List a file's tensors, and whether a pattern holds. FILE is a safetensors file, Louver's or any other."""
    from louver.commands.inspect import inspect_file

    return inspect_file(file, pattern)


@click.command()
@click.argument("source", metavar="IN", type=PATH)
@click.argument("target", metavar="OUT", type=PATH)
@pattern_option
@click.option("--dtype", type=FLOATS, help="Convert the pruned tensors first.")
@include_option
@exclude_option
@click.option("--compressed/--dense", default=False, help="Write values and indices, or dense tensors with zeros.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@result_command
def prune(
    source: Path,
    target: Path,
    pattern: str,
    dtype: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    compressed: bool,
    force: bool,
) -> Result:
    """Prune the 2-D weights of a checkpoint by magnitude. Reads IN and writes OUT; all other tensors are copied."""
    from louver.commands.prune import prune_file

    selection = Selection.of(include, exclude)
    return prune_file(source, target, pattern, dtype, selection, compressed=compressed, force=force)


@click.command()
@click.option("--weights", type=PATH, metavar="FILE", help="A safetensors file. Default: the demo package's.")
@click.option("--out", type=PATH, metavar="DIR", default=Path("louver-demo"), help="Where the results go.")
@include_option
@exclude_option
@result_command
def demo(weights: Path | None, out: Path, include: tuple[str, ...], exclude: tuple[str, ...]) -> Result:
    """Prune, compile, run and check real weights. Writes the sparse file, a plot and tables."""
    from louver.commands.demo import run_demo

    return run_demo(weights, out, Selection.of(include, exclude))
