"""What pruning one layer alone does to a model's predictions, for each layer and pattern."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import Chain, Resident, chains_of
from louver.torch.accuracy.calibrate import Options, Plan, Progress
from louver.torch.accuracy.collect import Collector
from louver.torch.accuracy.matrix import Method
from louver.torch.accuracy.scores import Head, apart, mean_divergence
from louver.torch.accuracy.streams import Batch, Streams, batches
from louver.torch.accuracy.text import device_of
from louver.torch.accuracy.walk import Target, Walk

METHOD: Final = Method("sparsegpt", reconstruct=15)
"""How layers are pruned to measure their sensitivity: cheap, and of the kind that the model will be pruned by."""

ROWS: Final = 8
"""Rows of text by which sensitivity is measured."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A layer. kl: of the model by pattern, with this layer pruned alone; zeros: share of its weight by pattern."""

    name: str
    kl: Mapping[str, float]
    zeros: Mapping[str, float]


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
    *,
    blocks: str | None = None,
    progress: Progress | None = None,
) -> tuple[list[Sensitivity], list[str]]:
    """The sensitivities of linear layers of a model's blocks, and the names of all other layers and stacks of experts. The model is in evaluation mode, and stays as it is.

    patterns: to try, by layer; layers that it does not name are others. calibration: rows by text, for the statistics of
    inputs. judged: rows by text, of which `ROWS` measure the KL.

    Raises ValueError for a model without blocks or without one head.
    """
    chains = tuple(chains_of(model, blocks, next(iter(judged.values()))[:1, :16]))
    smallest = min((p for tried in patterns.values() for p in tried), key=lambda p: p.m)
    plan = Plan(model, Options(smallest, METHOD, blocks=blocks), chains, loaded=True)
    texts = batches(calibration, False)
    each = max(1, ROWS // len(judged))
    shown = [rows[:each] for rows in judged.values()]
    found: list[Sensitivity] = []
    with apart(model, shown[0][:1, :4]) as head:
        judge = _Judge(head, shown)
        for chain in chains:
            targets = [[t for t in plan.targets[name] if t.name in patterns and not t.stack] for name in chain.names]
            found += _Chain(model, chain, targets, texts, judge).run(patterns, progress)
    measured = {each.name for each in found}
    return found, [name for name in plan.names if name not in measured]


class _Chain:
    """The sensitivities of the layers of one chain of blocks."""

    def __init__(
        self, model: nn.Module, chain: Chain, targets: list[list[Target]], texts: Sequence[Batch], judge: _Judge
    ) -> None:
        self._chain, self._judge, self._source = chain, judge, Resident(model, chain)
        self._streams = Streams(model, chain, self._source, texts, device_of(model), dense=False)
        # Only its means to trace and prune a block are used: no block is changed.
        self._walk = Walk(chain, self._source, self._streams, targets, METHOD, 0, _nothing, _nothing, _nothing)

    def run(self, patterns: Mapping[str, Sequence[Pattern]], progress: Progress | None) -> Generator[Sensitivity]:
        begin, count = time.monotonic(), len(self._chain.names)
        for index in range(count):
            block = self._source.load(index)
            yield from self._block(index, block, patterns)
            self._streams.advance(block, {})
            if progress is not None:
                progress(index + 1, count, (time.monotonic() - begin) / (index + 1) * (count - index - 1))

    def _block(self, index: int, block: nn.Module, patterns: Mapping[str, Sequence[Pattern]]) -> Generator[Sensitivity]:
        targets = {target.parameter: target for target in self._walk.targets[index]}
        parameters = {name: p for name, p in block.named_parameters() if name in targets}
        if not parameters:
            return
        trace = self._walk.trace(index, block, {name: p.detach() for name, p in parameters.items()})
        tried = {n: p.detach() for n, p in parameters.items() if n in trace.levels and patterns[targets[n].name]}
        collector = Collector(self._streams, block, trace, list(tried), {}, correct=False)
        if tried:
            collector.run()
        for name in trace.levels:
            target, kl, zeros = targets[name], dict[str, float](), dict[str, float]()
            for pattern in patterns[target.name]:
                try:
                    wanted = replace(target, pattern=pattern)
                    new, mask, _ = self._walk.prune(wanted, tried[name], trace.turned[name], collector)
                except ArithmeticError as error:
                    raise ArithmeticError(f"{target.name}: {error}") from None
                zeros[str(pattern)] = 1 - mask.double().mean().item()
                with _instead(parameters[name], new):
                    kl[str(pattern)] = self._judge.kl()
            yield Sensitivity(target.name, kl, zeros)


def _nothing(*_: object) -> None:
    """Nothing was finished before, and nothing is kept."""


@contextlib.contextmanager
def _instead(parameter: nn.Parameter, value: Tensor) -> Generator[None]:
    """Give a parameter another value for a while."""
    before = parameter.data
    parameter.data = value
    try:
        yield
    finally:
        parameter.data = before
