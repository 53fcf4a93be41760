"""What a command says while it works: on standard error, so that standard output has results alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

from louver.report.text import shown

T = TypeVar("T")


def note(text: str) -> None:
    """Say a line."""
    click.echo(shown(text, encoding_of(sys.stderr)), err=True)


def track(items: Iterable[T], label: str, total: int) -> Iterator[T]:
    """The items, with a bar of how many have been taken where standard error is a terminal."""
    hidden = not sys.stderr.isatty()
    with click.progressbar(items, length=total, label=label, file=sys.stderr, hidden=hidden) as bar:
        yield from bar


def encoding_of(stream: object) -> str:
    """The encoding of a text stream."""
    return getattr(stream, "encoding", None) or "utf-8"
