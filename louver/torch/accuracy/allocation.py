"""Which pattern each layer gets: what pruning it costs, the choice of least harm at a budget, and its record."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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

ROUNDS: Final = 80
"""Halvings of the range in which the price lies, on a logarithmic scale."""


@dataclass(frozen=True, slots=True)
class Option:
    """A pattern for a layer, None for dense. kl: what it costs; cost: its part of what the budget limits."""

    pattern: str | None
    kl: float
    cost: float


def choose(layers: Sequence[Sequence[Option]], limit: float) -> list[Option]:
    """An option for each layer: least sum of KL whose sum of costs is at most `limit`, but for a rest.

    One price of cost decides for all layers: each takes the option of least KL + price · cost. The least price at which
    the limit holds is found by bisection. What the limit then leaves is spent where it saves most KL.

    Raises ValueError if the limit is out of reach, with the least sum of costs.
    """
    least = sum(min(option.cost for option in options) for options in layers)
    if least > limit + 1e-12:
        raise ValueError(f"out of reach: costs of {limit:.6g} are allowed, got {least:.6g} at least")

    def taken(price: float) -> list[Option]:
        return [min(options, key=lambda o: (o.kl + price * o.cost, o.cost)) for options in layers]

    def fits(chosen: Sequence[Option]) -> bool:
        return sum(option.cost for option in chosen) <= limit + 1e-12

    kept = [min(options, key=lambda o: (o.cost, o.kl)) for options in layers]
    low, high = 1e-12, 1e12
    if fits(free := taken(0.0)):
        return free
    for _ in range(ROUNDS):
        price = math.sqrt(low * high)
        chosen = taken(price)
        if fits(chosen):
            kept, high = chosen, price
        else:
            low = price
    return _spent(layers, kept, limit)


def _spent(layers: Sequence[Sequence[Option]], kept: list[Option], limit: float) -> list[Option]:
    """Take the option that saves most KL and still fits, again and again."""
    kept = list(kept)
    while True:
        rest = limit + 1e-12 - sum(option.cost for option in kept)
        better = [
            (kept[at].kl - option.kl, at, option)
            for at, options in enumerate(layers)
            for option in options
            if option.kl < kept[at].kl and option.cost - kept[at].cost <= rest
        ]
        if not better:
            return kept
        _, at, option = max(better, key=lambda each: each[0])
        kept[at] = option


@dataclass(frozen=True, slots=True)
class LayerChoice:
    """A layer of an allocation. pattern: chosen, None for dense. kl: of the model with this layer pruned alone, and
    zeros: share of the weight, both by pattern.

    us: µs of a product by pattern ("dense" too), the mean over the numbers of tokens; empty for a budget of zeros.
    """

    name: str
    shape: tuple[int, ...]
    pattern: str | None
    kl: Mapping[str, float]
    zeros: Mapping[str, float]
    us: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Allocation(Mapping[str, "str | None"]):
    """Patterns by the name of a layer, None for dense: what `allocate` chose, for `prune_(model, per_layer=…)`.

    budget: as asked. layers: a record for each linear layer, and each stack of experts, which
    stays dense. kl: sum over layers, in nats: what pruning may cost if harms add up.
    zeros: share over the prunable weights. speedup: dense time over sparse time of the products with these weights; None
    for a budget of zeros. measured: whether times were measured here, rather than predicted for an H200.
    """

    budget: str
    layers: tuple[LayerChoice, ...]
    kl: float
    zeros: float
    speedup: float | None
    measured: bool
    tokens: tuple[int, ...]

    def __getitem__(self, name: str) -> str | None:
        found = next((layer for layer in self.layers if layer.name == name), None)
        if found is None:
            raise KeyError(f"{name!r} is no layer of the allocation")
        return found.pattern

    def __iter__(self) -> Iterator[str]:
        return (layer.name for layer in self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def json(self) -> str:
        """All fields."""
        return json.dumps(asdict(self), indent=1)

    def __str__(self) -> str:
        rows = [("layer", "shape", "pattern", "KL by pattern")]
        rows += [
            (
                each.name,
                " × ".join(map(str, each.shape)),
                each.pattern or "dense",
                ", ".join(f"{pattern} {kl:.2g}" for pattern, kl in each.kl.items()),
            )
            for each in self.layers
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
        origin = "measured" if self.measured else "predicted for an H200"
        speed = (
            ""
            if self.speedup is None
            else f", {self.speedup:.2f} × as fast at {_listed(self.tokens)} tokens ({origin})"
        )
        return "\n".join([*lines, f"{self.budget}: {self.zeros:.1%} zeros{speed}, KL {self.kl:.3g} if harms add up"])


def _listed(tokens: Sequence[int]) -> str:
    return ", ".join(map(str, tokens))


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
