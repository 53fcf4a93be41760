"""Notes and progress of a command, on standard error. Standard output has only results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TextIO, TypeVar

import click

from louver.measure.report.table import shown

T = TypeVar("T")


def note(text: str) -> None:
    """Print a line."""
    click.echo(shown(text, encoding_of(sys.stderr)), err=True)


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items. A terminal shows a bar of the number of items taken."""
    with click.progressbar(
        items, length=total, label=label, file=sys.stderr, hidden=not is_terminal(sys.stderr)
    ) as bar:
        yield from bar


@contextmanager
def progress(label: str) -> Generator[Callable[[float], None]]:
    """A bar of the finished share, from 0 to 1, if standard error is a terminal."""
    hidden = not is_terminal(sys.stderr)
    with click.progressbar(length=1000, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield lambda share: bar.update(round(1000 * share) - bar.pos)


@contextmanager
def phases() -> Generator[Callable[[str, float], None]]:
    """Bars of the finished share, from 0 to 1, one after the other by their labels, if standard error is a terminal. Each
    shows the time left.
    """
    with ExitStack() as stack:
        current, show = "", None

        def shown(label: str, share: float) -> None:
            nonlocal current, show
            if label != current or show is None:
                stack.close()
                current, show = label, stack.enter_context(progress(label))
            show(share)

        yield shown


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal. None is a stream that was closed when the process started."""
    return stream is not None and stream.isatty()


def encoding_of(stream: TextIO | None) -> str:
    """The encoding of a standard stream."""
    return (stream and stream.encoding) or "utf-8"
