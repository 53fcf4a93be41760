"""The course of a distillation: its options, when it ends, the learning rate on the way, and the order of the text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from louver.torch.accuracy.text import check_tokens

RATE: Final = 1.4e-3
"""Peak learning rate of a model of `WIDTH` features. Half of it gave 3% more perplexity after 24 s there."""

WIDTH: Final = 576

WARM_STEPS: Final = 20
LAST: Final = 0.03
"""The last learning rate over the peak."""


def default_rate(width: int) -> float:
    """The peak rate of a model of so many features: falls as 1 / width, as Adam's best one does for wide matrices
    (arXiv 2203.03466), and rises no further for narrow ones.
    """
    return RATE * min(1.0, WIDTH / width)


@dataclass(frozen=True, slots=True)
class Options:
    """What `distill_` was asked for, checked."""

    minutes: float | None
    steps: int | None
    rate: float | None
    batch: int
    length: int
    generate: int | None
    moving: bool
    parts: str
    seed: int

    def __post_init__(self) -> None:
        if (self.minutes is None) == (self.steps is None):
            raise ValueError(
                f"a distillation ends by minutes or by steps, got minutes={self.minutes!r} and steps={self.steps!r}"
            )
        for name, least in (("steps", 1), ("batch", 1), ("length", 2), ("generate", 0), ("seed", 0)):
            value: object = getattr(self, name)
            if value is None and name in ("steps", "generate"):
                continue
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is an integer of {least} or more, got {value!r}")
        if self.parts not in ("model", "blocks"):
            raise ValueError(f'parts is "model" or "blocks", got {self.parts!r}')
        if self.moving and self.parts == "blocks":
            raise ValueError('masks move where the whole model trains, got moving=True and parts="blocks"')
        for name in ("minutes", "rate"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name} is a positive number, got {value!r}")

    def done(self, step: int, seconds: float) -> float:
        """The share of the course that is behind."""
        return step / self.steps if self.steps is not None else seconds / (60 * (self.minutes or 1))

    def rate_at(self, peak: float, step: int, done: float) -> float:
        """The learning rate: some steps of warm-up, then half a cosine."""
        warm = WARM_STEPS if self.steps is None else max(1, min(WARM_STEPS, self.steps // 10))
        return peak * min(1.0, (step + 1) / warm) * (LAST + (1 - LAST) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


HELD: Final = 1 / 16
"""Of the rows, those that no step reads. Of few rows, none."""

MOST_HELD: Final = 4
"""Batches of such rows."""


class Order:
    """Rows of the text in a random order, anew for each pass through it.

    held: batches of rows [batches, batch] that it leaves out, to see what the model learns by heart.
    """

    def __init__(self, rows: int, batch: int, seed: int) -> None:
        self._batch = min(batch, rows)
        self._generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(rows, generator=self._generator)
        held = min(MOST_HELD, int(HELD * rows) // self._batch) * self._batch
        self.held, self._order, self._at = order[:held].view(-1, self._batch), order[held:], 0

    @property
    def rows(self) -> int:
        """Of one pass."""
        return len(self._order)

    def next(self) -> Tensor:
        """The rows of a batch, on the host."""
        if self._at + self._batch > self.rows:
            self._order, self._at = self._order[torch.randperm(self.rows, generator=self._generator)], 0
        self._at += self._batch
        return self._order[self._at - self._batch : self._at]

    def state(self) -> dict[str, Any]:
        """For `load`."""
        return {"generator": self._generator.get_state(), "order": self._order, "at": self._at}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._generator.set_state(state["generator"])
        self._order, self._at = state["order"], state["at"]


def windows(data: Tensor | Mapping[str, Tensor], length: int, vocabulary: int) -> Tensor:
    """Rows of equal length, int64 [rows, at most `length`], of tokens [rows, any length] or of several such by name.

    Longer rows are cut. Raises ValueError for tokens outside of the vocabulary, and for rows that are too short.
    """
    named = dict(data) if isinstance(data, Mapping) else {"data": data}
    if not named:
        raise ValueError("data are tokens, or tokens by name, got no text")
    size = min(length, *(check_tokens(text, name).shape[1] for name, text in named.items()))
    for name, text in named.items():
        low, high = int(text.min()), int(text.max())
        if low < 0 or high >= vocabulary:
            raise ValueError(
                f"tokens of {name} are 0 to {vocabulary - 1:,} for this model, got {low if low < 0 else high:,}"
            )
    cut = [text[:, : text.shape[1] // size * size].reshape(-1, size).long().cpu() for text in named.values()]
    return torch.cat(cut)
