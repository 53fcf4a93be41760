"""Ends a command with its exit code. Prints an error as one line on standard error."""

from __future__ import annotations

import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from louver.cli.commands.notes import note
from louver.formats.extras import explained
from louver.formats.regular import FormatError
from louver.ptx.assembler import AssemblerMissingError
from louver.ptx.sass import DisassemblerMissingError
from louver.runtime.device import NoDeviceError

FAILED, USAGE, INTERRUPTED = 1, 2, 130

HELP_WIDTH = 80

FAILURES = (
    OSError,
    MemoryError,
    FormatError,
    ModuleNotFoundError,
    ArithmeticError,
    AssemblerMissingError,
    DisassemblerMissingError,
    NoDeviceError,
)
"""Errors of a file, the machine or a check. A ValueError is a wrong argument; any other error is a bug."""


class CommandLine(click.Group):
    """Commands that end with exit code 0, `FAILED`, `USAGE` or `INTERRUPTED`, and report the reason in one line."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run these arguments, or the process's, and end the process."""
        # Click's own help has at least 50 columns.
        extra |= {"standalone_mode": False, "terminal_width": min(shutil.get_terminal_size().columns, HELP_WIDTH)}
        try:
            with _warnings_as_notes():
                status = super().main(*args, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            status = USAGE
        except click.UsageError as error:
            usage = error.ctx.get_usage() if error.ctx is not None else ""
            status = _say(" ".join(f"{error.format_message()} {usage}".split()), USAGE)
        except click.Abort:
            status = _say("interrupted", INTERRUPTED)
        except FAILURES as error:
            status = _say(_message(error), FAILED)
        except ValueError as error:
            status = _say(_message(error), USAGE)
        except Exception as error:
            for line in traceback.format_exc().splitlines():
                note(line)
            status = _say(f"this is a bug in louver, please report it: {type(error).__name__}", FAILED)
        if status:
            _drop_output()
        sys.exit(status)


def _drop_output() -> None:
    """Drop what standard output did not take. Python would try again at its end, and change the exit code to 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str, status: int) -> int:
    note(f"error: {text}")
    return status


def _message(error: Exception) -> str:
    text = explained(error) if isinstance(error, ImportError) else str(error)
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return " ".join(". ".join([text, *getattr(error, "__notes__", ())]).split())


@contextmanager
def _warnings_as_notes() -> Generator[None]:
    def show(message: Warning | str, *_: object) -> None:
        note(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
