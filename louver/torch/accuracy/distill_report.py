"""What a distillation did: its loss over time, its speed, and how it ran."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

BY_HEART: Final = 1.5
"""The loss of rows apart over that of the last steps, from which on more text is advised."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the curve. loss: mean of the steps since the last one; step, tokens, seconds: since the beginning."""

    step: int
    tokens: int
    seconds: float
    loss: float


@dataclass(frozen=True, slots=True)
class Distillation:
    """Report of `distill_`.

    parts: "model", whose loss is KL(dense ‖ pruned) in nats, or "blocks", whose loss is the squared error of a block's
    output over the dense one's mean square. curve: of the loss; for blocks a point for each. steps, tokens: trained on. seconds: of training; prepared_seconds:
    before it, for text and compilation. rate: the peak learning rate. passes: how often each row was read; held_out: the
    loss of rows that were not; None for little text, and for blocks. masked, zeros: weights with a mask, and their
    share of zeros. moved: share of kept places that differ from those at the beginning. notes: what else to know.
    """

    parts: str
    curve: tuple[Point, ...]
    steps: int
    tokens: int
    seconds: float
    prepared_seconds: float
    rate: float
    passes: float
    held_out: float | None
    masked: int
    zeros: float
    moved: float
    notes: tuple[str, ...]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def by_heart(self) -> bool:
        """Whether rows apart are predicted far worse than rows that were read again and again."""
        return self.held_out is not None and self.passes > 2 and self.held_out > BY_HEART * self.curve[-1].loss

    def json(self) -> str:
        """All fields."""
        return json.dumps({**asdict(self), "tokens_per_second": self.tokens_per_second}, indent=1)

    def __str__(self) -> str:
        # Ten points show the curve.
        shown = (
            [self.curve[at] for at in sorted({round(i * (len(self.curve) - 1) / 9) for i in range(10)})]
            if self.curve
            else []
        )
        lines = [f"{'step':>8}  {'tokens':>12}  {'seconds':>8}  {'loss':>8}"]
        lines += [f"{each.step:>8,}  {each.tokens:>12,}  {each.seconds:>8.1f}  {each.loss:>8.4f}" for each in shown]
        lines.append(
            f"{self.steps:,} steps, {self.tokens:,} tokens in {self.seconds:.1f} s ({self.tokens_per_second:,.0f} a second), "
            f"after {self.prepared_seconds:.1f} s of preparation; rate {self.rate:.2g}; {self.masked} weights keep {self.zeros:.1%} zeros"
        )
        if self.held_out is not None:
            lines.append(f"loss of rows apart {self.held_out:.4f}; each other row was read {self.passes:.1f} times")
            if self.by_heart:
                lines.append(
                    "the model learns its text by heart: give more text, by data or generate, or fewer minutes"
                )
        if self.moved:
            lines.append(f"{self.moved:.1%} of the kept places moved")
        return "\n".join([*lines, *self.notes])


class Shown:
    """Tells how far a distillation is: to a function, or by a line on a terminal."""

    def __init__(self, progress: Callable[[Point], object] | None) -> None:
        self._progress = progress

    def step(self, point: Point, done: float) -> None:
        """A new point, with the share of the work that is done."""
        if self._progress is not None:
            self._progress(point)
        elif sys.stderr.isatty():
            minutes, seconds = divmod(round(point.seconds * max(0.0, 1 / done - 1)), 60)
            end = "\n" if done >= 1 else ""
            sys.stderr.write(
                f"\rdistilled {min(done, 1):.0%}, loss {point.loss:.4f}, {minutes}:{seconds:02} left {end}"
            )
            sys.stderr.flush()
