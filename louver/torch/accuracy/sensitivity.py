"""What pruning a group of layers alone does to a model's predictions, for each group and pattern."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import Chain, Resident, chains_of
from louver.torch.accuracy.calibrate import Options, Plan, Progress
from louver.torch.accuracy.collect import Collector
from louver.torch.accuracy.matrix import Method
from louver.torch.accuracy.scores import Head, apart, mean_divergence
from louver.torch.accuracy.streams import Streams, batches
from louver.torch.accuracy.walk import Target, Walk

METHOD: Final = Method("sparsegpt", reconstruct=15)
"""How groups are pruned to measure their sensitivity: cheap, and of the kind that the model will be pruned by."""

ROWS: Final = 8
"""Rows of text by which sensitivity is measured."""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers of one input. kl: of the model by pattern, with this group pruned alone; zeros: by layer and pattern."""

    layers: tuple[str, ...]
    kl: Mapping[str, float]
    zeros: Mapping[str, Mapping[str, float]]


class _Judge:
    """KL(dense ‖ model) on some rows, of the model as it is when it is asked."""

    def __init__(self, head: Head, rows: Sequence[Tensor]) -> None:
        self._head, self._rows = head, rows
        self._dense = [head.hidden(each).flatten(0, 1) for each in rows]

    def kl(self) -> float:
        total, count = 0.0, 0
        for rows, dense in zip(self._rows, self._dense, strict=True):
            total += mean_divergence(self._head.hidden(rows).flatten(0, 1), dense, self._head) * len(dense)
            count += len(dense)
        return max(0.0, total / count)


def sensitivities(
    model: nn.Module,
    patterns: Mapping[str, Sequence[Pattern]],
    calibration: Mapping[str, Tensor],
    judged: Mapping[str, Tensor],
    device: torch.device,
    *,
    skip: tuple[str, ...] = (),
    blocks: str | None = None,
    progress: Progress | None = None,
) -> list[Group]:
    """The groups of linear layers of a model's blocks, with their sensitivities. The model is in evaluation mode.

    patterns: to try, by layer; layers that it does not name are left out. calibration: rows by text, for the statistics of
    inputs. judged: rows by text, of which `ROWS` measure the KL.

    Raises ValueError for a model without blocks or without one head.
    """
    chains = chains_of(model, blocks, next(iter(judged.values()))[:1, :16])
    smallest = min((p for tried in patterns.values() for p in tried), key=lambda p: p.m)
    plan = Plan(model, Options(smallest, METHOD, skip=skip, blocks=blocks), tuple(chains), loaded=True)
    texts = batches(calibration, False)
    each = max(1, ROWS // len(judged))
    shown = [rows[:each] for rows in judged.values()]
    groups: list[Group] = []
    with apart(model, shown[0][:1, :4]) as head:
        judge = _Judge(head, shown)
        for chain, source in chains.items():
            groups += _Chain(
                model,
                chain,
                plan,
                Streams(model, chain, source, texts, device, dense=False),
                judge,
                progress,
            ).run(patterns)
    return groups


class _Chain:
    """The sensitivities of the blocks of one chain."""

    def __init__(
        self, model: nn.Module, chain: Chain, plan: Plan, streams: Streams, judge: _Judge, progress: Progress | None
    ) -> None:
        self._chain, self._plan, self._streams, self._judge, self._progress = chain, plan, streams, judge, progress
        self._source = Resident(model, chain)
        # Only its means to trace and prune a block are used: no block is changed.
        targets = [[target for target in plan.targets[name] if not target.stack] for name in chain.names]
        self._walk = Walk(chain, self._source, streams, targets, METHOD, 0, _nothing, _nothing, _nothing)

    def run(self, patterns: Mapping[str, Sequence[Pattern]]) -> list[Group]:
        groups: list[Group] = []
        for index in range(len(self._chain.names)):
            block = self._source.load(index).to(self._streams.device)
            groups += self._block(index, block, patterns)
            self._streams.advance(block, {})
            self._source.store(index, block)
            if self._progress is not None:
                self._progress(index + 1, len(self._chain.names), 0.0)
        return groups

    def _block(self, index: int, block: nn.Module, patterns: Mapping[str, Sequence[Pattern]]) -> list[Group]:
        targets = {t.parameter: t for t in self._walk.targets[index] if t.name in patterns}
        parameters = dict(block.named_parameters())
        weights = {name: parameters[name].detach() for name in targets}
        if not weights:
            return []
        trace = self._walk.trace(index, block, weights)
        weights = {name: weight for name, weight in weights.items() if name in trace.levels}
        tried = {name: weight for name, weight in weights.items() if patterns[targets[name].name]}
        collector = Collector(self._streams, block, trace, tried, {}, correct=False)
        if tried:
            collector.run()
        together: dict[int, list[Target]] = {}
        for name in weights:
            together.setdefault(trace.sources[name], []).append(targets[name])
        return [
            self._group(found, weights, parameters, collector, trace.turned, patterns) for found in together.values()
        ]

    def _group(
        self,
        targets: Sequence[Target],
        weights: Mapping[str, Tensor],
        parameters: Mapping[str, nn.Parameter],
        collector: Collector,
        turned: Mapping[str, bool],
        patterns: Mapping[str, Sequence[Pattern]],
    ) -> Group:
        kl: dict[str, float] = {}
        zeros: dict[str, dict[str, float]] = {target.name: {} for target in targets}
        # A pattern that only some of the layers can keep is none for the group.
        shared = [p for p in patterns[targets[0].name] if all(p in patterns[target.name] for target in targets)]
        for pattern in shared:
            new: dict[str, Tensor] = {}
            for target in targets:
                name = target.parameter
                try:
                    weight, mask, _ = self._walk.prune(
                        replace(target, pattern=pattern), weights[name], turned[name], collector
                    )
                except ArithmeticError as error:
                    raise ArithmeticError(f"{target.name}: {error}") from None
                new[name] = weight
                zeros[target.name][str(pattern)] = 1 - mask.double().mean().item()
            with _instead({parameters[name]: weight for name, weight in new.items()}):
                kl[str(pattern)] = self._judge.kl()
        return Group(tuple(target.name for target in targets), kl, zeros)


def _nothing(*_: object) -> None:
    """Nothing was finished before, and nothing is kept."""


@contextlib.contextmanager
def _instead(values: Mapping[nn.Parameter, Any]) -> Generator[None]:
    """Give parameters other values for a while."""
    before = [(parameter, parameter.data) for parameter in values]
    try:
        for parameter, value in values.items():
            parameter.data = value.to(parameter.dtype)
        yield
    finally:
        for parameter, value in before:
            parameter.data = value
