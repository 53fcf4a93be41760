"""Which channels of a block are free to take another order, and the orders in which pruning keeps more.

Orders of channels that keep more: where a layer's outputs meet the next one's inputs, their order is free.

Groups of N:M are consecutive columns, so another order of the columns makes other groups. The rows of the layers before
take the same order, and the block computes the same. Free are the rows of gate and up with the columns of down, and
within each head the rows of v with the columns of o.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import outputs, run, stream
from louver.torch.accuracy.masks import keep
from louver.torch.accuracy.products import Collect, Product, Stop, Trace, Weights
from louver.torch.accuracy.streams import Streams

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


ROUNDS: Final = 300
"""Rounds of the search for an order."""

_BATCHES: Final = 4
"""Batches whose inputs weigh the channels."""


@dataclass(frozen=True, slots=True)
class _Free:
    """Channels by the names of their tensors, see `Channels`."""

    producers: tuple[str, ...]
    consumer: str
    parts: int
    repeats: int

    def of(self, tensors: Mapping[str, Tensor], turned: Mapping[str, bool]) -> Channels:
        """The channels of some tensors. Weights [in, out] are read turned."""
        *producers, consumer = (
            tensors[name].mT if turned.get(name, False) else tensors[name] for name in (*self.producers, self.consumer)
        )
        return Channels(producers, consumer, self.parts, self.repeats)


class Permuter:
    """Reorders free channels of blocks, before they are pruned. The next blocks try only what was free in the first."""

    def __init__(self) -> None:
        self._known: dict[str, list[_Free]] = {}

    def __call__(
        self, streams: Streams, block: nn.Module, trace: Trace, patterns: Mapping[str, Pattern], seed: int
    ) -> dict[str, Tensor]:
        """The tensors of a block that take another order, by name. The block computes the same with them.

        patterns: of the weights to prune, by name. Only weights that are no stacks are asked.
        """
        generator = torch.Generator().manual_seed(seed)
        parameters = {name: p.detach() for name, p in block.named_parameters()}
        free = self._find(streams, block, trace, patterns, parameters, generator)
        norms = _square_sums(streams, block, {one.consumer: parameters[one.consumer] for one in free}, trace)
        new: dict[str, Tensor] = {}
        for one in free:
            for name in (*one.producers, one.consumer):
                new.setdefault(name, parameters[name].clone())
            channels = one.of(new, trace.turned)
            score = channels.consumer.float().square() * norms[one.consumer]
            channels.apply_(channels.order_of(score, patterns[one.consumer], ROUNDS, generator))
        return new

    def _find(
        self,
        streams: Streams,
        block: nn.Module,
        trace: Trace,
        patterns: Mapping[str, Pattern],
        parameters: Mapping[str, Tensor],
        generator: torch.Generator,
    ) -> list[_Free]:
        # In f32, because rounding would hide what an order changes.
        copies = {name: p.float() if p.is_floating_point() else p for name, p in parameters.items()}
        copies = {name: p.clone() for name, p in copies.items()}
        args, kwargs = tree_map(_wide, streams.arguments(0))

        def outcome() -> Tensor:
            with torch.no_grad():
                return stream(outputs(run(block, copies, (args, kwargs)))).float()

        found: list[_Free] = []
        before = outcome()
        for consumer, pattern in patterns.items():
            if parameters[consumer].dim() != 2:
                continue
            if (tried := self._known.get(consumer)) is None:
                names = [name for name in patterns if name in trace.levels]
                tried = _candidates(trace, consumer, pattern, names, parameters)
            free = (one for one in tried if one.of(copies, trace.turned).are_free(outcome, before, generator))
            first = list(itertools.islice(free, 1))
            # A try runs the block twice, and most weights have no free channels: they are not asked again.
            self._known.setdefault(consumer, first)
            found += first
        return found


def _candidates(
    trace: Trace, consumer: str, pattern: Pattern, names: Sequence[str], parameters: Mapping[str, Tensor]
) -> Iterator[_Free]:
    """Weights whose outputs may be the consumer's inputs: those of one input together, then each alone."""
    size = parameters[consumer].shape[0 if trace.turned[consumer] else 1]
    groups: dict[int, list[str]] = {}
    for name in names:
        if parameters[name].dim() == 2 and trace.levels.get(name, trace.levels[consumer]) < trace.levels[consumer]:
            groups.setdefault(trace.sources[name], []).append(name)
    for group in reversed(groups.values()):
        for members in dict.fromkeys([tuple(group), *((name,) for name in group)]):
            rows = {parameters[name].shape[1 if trace.turned[name] else 0] for name in members}
            if len(rows) != 1 or size % (height := rows.pop()):
                continue
            biases = [name.removesuffix("weight") + "bias" for name in members]
            producers = (*members, *(bias for bias in biases if bias in parameters))
            whole = _parts(height, size // height, pattern.m)
            yield from (_Free(producers, consumer, parts, size // height) for parts in whole)


def _parts(channels: int, repeats: int, m: int) -> list[int]:
    """In how many spans of whole groups channels may be cut, fewest first."""
    one = [1] if repeats == 1 else []
    return one + [n for n in range(len(one) + 1, channels // m + 1) if channels % (n * m) == 0]


def _square_sums(streams: Streams, block: nn.Module, weights: Mapping[str, Tensor], trace: Trace) -> dict[str, Tensor]:
    """The sum of squares of each input of some weights, f32 [K], over a few batches of the calibration."""
    sums: dict[str, Any] = dict.fromkeys(weights, 0.0)

    def see(product: Product) -> None:
        sums[product.name] = sums[product.name] + product.x.detach().float().flatten(0, -2).square().sum(0)

    batches = [batch for batch, about in enumerate(streams.batches) if not about.held_out]
    for batch in batches[:_BATCHES] if weights else ():
        mode = Collect(Weights(weights), {name: trace.counts[name] for name in weights}, see)
        try:
            with torch.no_grad(), mode:
                run(block, {}, streams.arguments(batch))
        except Stop:
            pass
    return sums


def _wide(leaf: Any) -> Any:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf
