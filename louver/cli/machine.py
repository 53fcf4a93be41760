"""Commands about the machine at hand: doctor, tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from louver.cli.options import Product
from louver.cli.output import one_line_errors, terminal


def doctor() -> None:
    """Say what this machine can do, and why not."""
    from louver.commands.doctor import examine, healthy, show

    facts = examine()
    show(facts, terminal())
    if not healthy(facts):
        raise typer.Exit(1)


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
