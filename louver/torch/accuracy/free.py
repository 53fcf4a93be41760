"""Which channels of a block are free to take another order, and the orders in which pruning keeps more."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import outputs, run, stream
from louver.torch.accuracy.permute import Channels
from louver.torch.accuracy.products import Collect, Product, Stop, Trace, Weights
from louver.torch.accuracy.streams import Streams

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
