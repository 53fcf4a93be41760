"""A statement of a document, what became of it, and what shows that."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from louver.cli.commands.claims import VERDICTS

TOLD = ("cannot be checked here", "in the project")
"""Verdicts whose evidence may be a text alone."""

_PLACE = re.compile(r"`((?:louver|tests|docs|benchmarks|examples)/[\w./*-]+)`")


@dataclass(frozen=True, slots=True)
class Claim:
    """number: the row in its document's list. lines: of the document, as published. statement: in plain words.

    evidence: a text, or a function that runs what shows the verdict and returns the text, with the numbers that it
    found. It raises AssertionError where the verdict no longer holds.
    """

    number: int
    lines: str
    statement: str
    verdict: str
    evidence: str | Callable[[], str]

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"the verdicts are {', '.join(VERDICTS)}, got {self.verdict!r}")
        if isinstance(self.evidence, str) and self.verdict not in TOLD:
            raise ValueError(f"{self.verdict!r} has a function as evidence, got a text: row {self.number}")

    def shown(self) -> str:
        """The evidence as text; runs the function if there is one."""
        return self.evidence if isinstance(self.evidence, str) else self.evidence()


@dataclass(frozen=True, slots=True)
class Document:
    """Its name here, its title, what to believe of it (a line each), and its statements in order."""

    name: str
    title: str
    believe: tuple[str, ...]
    claims: tuple[Claim, ...]

    def __post_init__(self) -> None:
        numbers = [claim.number for claim in self.claims]
        if numbers != list(range(1, len(numbers) + 1)):
            wrong = next(n for n, number in enumerate(numbers, 1) if n != number)
            raise ValueError(f"rows are numbered without a gap, got {numbers[wrong - 1]} as row {wrong} of {self.name}")


def places(text: str) -> list[str]:
    """The files and folders of the repository that a text names."""
    return _PLACE.findall(text)
