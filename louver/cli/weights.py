"""Commands on files of weights: inspect, prune, demo."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from louver.cli.options import ExcludeOption, IncludeOption, PatternOption
from louver.cli.output import one_line_errors, terminal
from louver.commands.selection import Selection


class FloatType(StrEnum):
    """Element types that a checkpoint can be converted to."""

    f16 = "f16"
    bf16 = "bf16"
    f32 = "f32"


def inspect(
    file: Annotated[Path, typer.Argument(help="A safetensors file, Louver's or any other.")],
    pattern: PatternOption = "2:4",
) -> None:
    """List a file's tensors: type, shape, size, and whether the pattern holds."""
    from louver.commands.inspect import inspect_file

    with one_line_errors():
        inspect_file(file, pattern, terminal())


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
