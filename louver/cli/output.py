"""Writes results to standard output or to a file, as text or as JSON. Options of several commands."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from louver.cli.commands.notes import encoding_of, is_terminal, note
from louver.cli.errors import FAILED
from louver.formats.regular import Target
from louver.measure.report.table import Result


class _NamedPath(click.Path):
    """A path that is not empty. An unset variable of a shell gives an empty one, which would mean the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("a path is not empty: is a variable unset?", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)

output_option = click.option("-o", "--output", type=PATH, metavar="FILE", help="Write the result to FILE.")


def result_command(command: Callable[..., Result]) -> Callable[..., None]:
    """A command that prints the `Result` of `command`, with the options --json and --output."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON document: docs/json.md has its keys.")
    @output_option
    @functools.wraps(command)
    def printing(as_json: bool, output: Path | None, **given: Any) -> None:
        check_output(output, given)
        result = command(**given)
        if as_json:
            deliver(result.json(), output)
        elif output is not None:
            deliver("\n".join(result.lines()), output)
        else:
            deliver("\n".join(result.lines(terminal_width(), encoding_of(sys.stdout))), None)
        if not result.ok:
            sys.exit(FAILED)

    return printing


def check_output(output: Path | None, given: Mapping[Any, Any]) -> None:
    """Refuse, before any work, a file that cannot be written or that is another argument's."""
    if output is None:
        return
    Target.of(output)
    for other in given.values():
        if isinstance(other, Path) and other.resolve() == output.resolve():
            raise ValueError(f"--output {output} is the file of another argument: choose another name")


def deliver(text: str, output: Path | None) -> None:
    """Write a result to `output`, or to standard output."""
    if output is None and sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise OSError("standard output is closed: open it, or give --output FILE")
    if output is None:
        click.echo(text)
    else:
        Target.of(output).write(f"{text}\n".encode())
        note(f"wrote {output}")


def terminal_width() -> int | None:
    """Cells in a line of standard output; None (any length) for a pipe or a file unless COLUMNS is set."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) or "COLUMNS" in os.environ else None


PRODUCTS: Final = click.Choice(["linear", "matmul"])
PRODUCTS_HELP: Final = "Which product: linear or matmul."
FLOATS: Final = click.Choice(["f16", "bf16", "e4m3", "e5m2", "f32"])

ACCUMULATE_HELP: Final = "auto, f32, f16, fast, promoted or s32."

pattern_option = click.option("--pattern", default="2:4", help="Pattern, such as 2:4, 2:8@32 in vectors, or 2:8@V64.")
include_option = click.option(
    "--include", metavar="GLOB", multiple=True, help="These tensors too, beside the default ones. May be repeated."
)
exclude_option = click.option("--exclude", metavar="GLOB", multiple=True, help="Not these tensors. May be repeated.")
only_option = click.option(
    "--only", metavar="GLOB", multiple=True, help="These tensors instead of the default ones. May be repeated."
)
axis_option = click.option(
    "--axis", type=int, metavar="AXIS", help="Sparse axis of the tensors that --include or --only names."
)
workers_option = click.option(
    "--workers",
    metavar="N|ray|URL",
    default="1",
    help="Processes of this machine, or a cluster: ray, or ray://HOST:PORT. Each writes a file, or runs a text, at a time. Default: 1.",
)
