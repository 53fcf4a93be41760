"""Orders of channels that keep more: where a layer's outputs meet the next one's inputs, their order is free.

Groups of N:M are consecutive columns, so another order of the columns makes other groups. The rows of the layers before
take the same order, and the block computes the same. Free are the rows of gate and up with the columns of down, and
within each head the rows of v with the columns of o.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from louver.formats.pattern import Pattern
from louver.torch.accuracy.masks import keep

SAMPLE: Final = 512
"""Rows, or windows of rows, that judge an order."""

_ROWS_AT_ONCE: Final = 32
"""Rows whose candidates are in memory together."""

_FREE: Final = 1e-3
"""Channels are free if their order changes less than this part of what the consumer's order alone changes."""


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels that producers write and one consumer reads, in parts (the key heads) within which the order is free.

    producers: [C, …], weights and biases whose first axis is the channels. consumer: [R, C · repeats], the weight that
    multiplies them. parts: separate spans of channels. repeats: how often the consumer reads each span in a row: query
    heads of a key head. Raises ValueError for shapes that do not fit.
    """

    producers: Sequence[Tensor]
    consumer: Tensor
    parts: int = 1
    repeats: int = 1

    def __post_init__(self) -> None:
        channels, rest = divmod(self.consumer.shape[1], self.repeats)
        if rest or channels % self.parts or any(len(each) != channels for each in self.producers):
            raise ValueError(
                f"producers have as many rows as a consumer has columns over repeats, in equal parts, got "
                f"{[len(each) for each in self.producers]} rows, {self.consumer.shape[1]} columns, {self.repeats} repeats "
                f"and {self.parts} parts"
            )

    def order_of(self, score: Tensor, pattern: Pattern, rounds: int, generator: torch.Generator) -> Tensor:
        """The order of channels [parts, span] that `order_of` finds for the score [R, C · repeats] of the consumer.

        Raises ValueError if the parts are no whole groups of the pattern.
        """
        spans = self.parts * self.repeats
        span = self.consumer.shape[1] // spans
        if spans > 1 and span % pattern.m:
            raise ValueError(f"an order within parts needs whole groups of {pattern}, got parts of {span} channels")
        windows = _windows(score, pattern).unflatten(2, (self.parts, self.repeats, span))
        return order_of(windows.permute(2, 3, 0, 1, 4).flatten(1, 2), pattern, rounds, generator)

    def rows(self, order: Tensor) -> Tensor:
        """For each row of a producer, the row that it takes its place from: [C]."""
        starts = torch.arange(self.parts, device=order.device) * order.shape[1]
        return (order + starts[:, None]).flatten()

    def columns(self, order: Tensor) -> Tensor:
        """The same for the consumer's columns: [C · repeats]."""
        starts = torch.arange(self.parts * self.repeats, device=order.device) * order.shape[1]
        return (order.repeat_interleave(self.repeats, 0) + starts[:, None]).flatten()

    @torch.no_grad()
    def apply_(self, order: Tensor) -> None:
        """Put the producers' rows and the consumer's columns in an order [parts, span], in place."""
        rows = self.rows(order)
        for each in self.producers:
            each.copy_(each[rows])
        self.consumer.copy_(self.consumer[:, self.columns(order)])

    @torch.no_grad()
    def are_free(self, run: Callable[[], Tensor], before: Tensor, generator: torch.Generator) -> bool:
        """Whether a random order leaves the outputs of `run`, which computes with producers and consumer.
        before: its outputs as they are.

        All tensors are again as they were. Best asked in f32: rounding must stay under a thousandth of what a wrong
        order does.
        """
        span = self.consumer.shape[1] // (self.parts * self.repeats)
        order = torch.stack([torch.randperm(span, generator=generator) for _ in range(self.parts)])
        order = order.to(self.consumer.device)
        back = order.argsort(1)
        alone = Channels((), self.consumer, self.parts, self.repeats)
        changes: list[float] = []
        for channels in (alone, self):
            channels.apply_(order)
            try:
                changes.append(float((run() - before).double().norm()))
            finally:
                channels.apply_(back)
        return changes[1] <= _FREE * changes[0] and changes[0] > 0


def order_of(score: Tensor, pattern: Pattern, rounds: int, generator: torch.Generator) -> Tensor:
    """Orders of columns whose groups keep more of a score: [batch, C], new column i is the old column `order[i]`.

    score: [batch, windows, height, C], what each element is worth in windows of rows; the height is 1 for patterns whose
    windows keep whole vectors, and the worth that of a vector. Each round pairs the groups of each matrix at random; a
    pair swaps the two columns that gain most, if any. Columns of a last group that is cut off stay. Of many rows, a
    sample judges.
    """
    batch, windows, height, size = score.shape
    m, pairs, device = pattern.m, size // (2 * pattern.m), score.device
    score = score[:, :: max(1, windows * height // SAMPLE)]
    order = torch.arange(size, device=device).repeat(batch, 1)
    swapped = _swapped(m).to(device)
    for _ in range(rounds if pairs else 0):
        groups = torch.stack([torch.randperm(size // m, generator=generator)[: 2 * pairs] for _ in range(batch)])
        places = (groups.to(device)[:, :, None] * m + torch.arange(m, device=device)).view(batch, pairs * 2 * m)
        columns = order.gather(1, places)
        kept = torch.zeros(batch, pairs, len(swapped), device=device)
        for part in score.split(max(1, _ROWS_AT_ONCE // height), 1):
            values = part.gather(3, columns[:, None, None].expand(*part.shape[:3], -1)).unflatten(3, (pairs, 2 * m))
            kept += _kept(values[..., swapped].unflatten(-1, (2, m)), pattern)
        best = swapped[kept.argmax(-1)]
        order.scatter_(1, places, columns.view(batch, pairs, 2 * m).gather(2, best).flatten(1))
    return order


def _windows(score: Tensor, pattern: Pattern) -> Tensor:
    """The worth of elements [R, C] as `order_of` takes it, [windows, height, C]."""
    height = min(pattern.length, len(score))
    windows = functional.pad(score, (0, 0, 0, -len(score) % height)).unflatten(0, (-1, height))
    return windows if len(pattern.levels) > 1 else windows.sum(1, keepdim=True)


def _swapped(m: int) -> Tensor:
    """The places of two groups of M as they are, and with each swap of a place of one with one of the other."""
    same = list(range(2 * m))
    found = [same]
    for i, j in itertools.product(range(m), range(m, 2 * m)):
        found.append([j if at == i else i if at == j else at for at in same])
    return torch.tensor(found)


def _kept(values: Tensor, pattern: Pattern) -> Tensor:
    """What the pattern keeps of candidates [batch, windows, height, pairs, candidates, 2, M]: [batch, pairs, candidates]."""
    if len(pattern.levels) > 1:
        rows = values.permute(1, 2, 0, 3, 4, 5, 6)
        flat = rows.flatten(2).flatten(0, 1)
        return (flat * keep(flat, pattern)).view(rows.shape).sum((0, 1, 5, 6))
    # Comparing neighbours is faster than sorting.
    planes = list(values.unbind(-1))
    total = torch.zeros_like(planes[0])
    for _ in range(pattern.n):
        for i in range(len(planes) - 1):
            planes[i], planes[i + 1] = torch.minimum(planes[i], planes[i + 1]), torch.maximum(planes[i], planes[i + 1])
        total += planes.pop()
    return total.sum((1, 2, 5))
