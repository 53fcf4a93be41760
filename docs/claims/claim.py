"""A statement of a document, what became of it, and what shows that."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

Verdict = Literal[
    "reproduced",
    "contradicts itself",
    "contradicts the PTX ISA",
    "confirmed by measurement",
    "refuted by measurement",
    "cannot be checked here",
    "in the project",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""reproduced: its own data, code or arithmetic, run here, gives what it says. contradicts itself: the same gives
something else, or another part of it denies it. contradicts the PTX ISA: ptxas, or the legal forms, deny it. confirmed,
refuted by measurement: a committed record says so. in the project: Louver does it, or has it as a form.
"""

TOLD: tuple[Verdict, ...] = ("cannot be checked here", "in the project")
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
    verdict: Verdict
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
