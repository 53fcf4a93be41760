"""What commands print to, and how what a user got wrong becomes one line."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import typer
from rich.console import Console

from louver.ptx.assembler import AssemblerMissingError
from louver.ptx.sass import DisassemblerMissingError

PIPE_COLUMNS = 160


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
        line = " ".join(" ".join([str(error), *getattr(error, "__notes__", ())]).split())
        Console(stderr=True, soft_wrap=True).print(f"error: {line}", style="bold red", markup=False, highlight=False)
        raise typer.Exit(2) from error
