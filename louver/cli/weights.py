"""Commands for files of weights: inspect, prune, demo."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from louver.cli.options import FLOATS, exclude_option, include_option, pattern_option
from louver.cli.output import PATH, result_command
from louver.measure.report.result import Result
from louver.models.selection import Selection

DTYPE_HELP = f"Type of pruned weights: {', '.join(FLOATS.choices)}. Default: unchanged, but f16 for compressed f32."


@click.command()
@click.argument("file", type=PATH)
@pattern_option
@result_command
def inspect(file: Path, pattern: str) -> Result:
    """List a file's tensors, and whether a pattern holds. FILE is a safetensors file, an index, or a folder with one."""
    from louver.cli.commands.inspect import inspect_file

    return inspect_file(file, pattern)


@click.command()
@click.argument("source", metavar="IN", type=PATH)
@click.argument("out", metavar="OUT", type=PATH)
@pattern_option
@click.option("--norm", type=click.Choice(["l1", "l2"]), default="l2", help="Norm of vectors: l1 or l2. Default: l2.")
@click.option("--dtype", type=FLOATS, metavar="TYPE", help=DTYPE_HELP)
@include_option
@exclude_option
@click.option("--compressed/--dense", default=False, help="Write values and indices, or dense tensors with zeros.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@result_command
def prune(
    source: Path,
    out: Path,
    pattern: str,
    norm: Literal["l1", "l2"],
    dtype: str | None,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    compressed: bool,
    force: bool,
) -> Result:
    """Prune the 2-D weights of a checkpoint by magnitude. Reads IN and writes OUT. All other tensors are copied.

    IN is a safetensors file, the index of a sharded checkpoint, or a folder with one of these. OUT is a file, or a
    folder for files of the same names. For a sharded checkpoint, OUT is an index (a name that ends in .json) or a
    folder. The same command continues an interrupted run.
    """
    from louver.cli.commands.prune import prune_file
    from louver.formats.pattern import Pattern
    from louver.models.prune_checkpoint import PruneOptions

    selection = Selection.of(include, exclude)
    options = PruneOptions(Pattern.parse(pattern), dtype, selection, compressed, force, norm)
    return prune_file(source, out, options)


@click.command()
@click.option("--weights", type=PATH, metavar="FILE", help="A safetensors file. Default: the demo package's.")
@click.option("--out", type=PATH, metavar="DIR", default=Path("louver-demo"), help="Folder for the results.")
@include_option
@exclude_option
@result_command
def demo(weights: Path | None, out: Path, include: tuple[str, ...], exclude: tuple[str, ...]) -> Result:
    """Prune, compile, run and check real weights, and compare sentences. Writes the sparse file, a plot and a report."""
    from louver.cli.commands.demo import run_demo

    return run_demo(weights, out, Selection.of(include, exclude))
