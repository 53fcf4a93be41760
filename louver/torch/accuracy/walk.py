"""The walk: prune block after block, each by what it is given once the blocks before it are pruned."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import Blocks, Chain, outputs, run, stream
from louver.torch.accuracy.collect import Collector, Statistics
from louver.torch.accuracy.free import Permuter
from louver.torch.accuracy.matrix import Method, prune_matrix, relative_error
from louver.torch.accuracy.moments import products
from louver.torch.accuracy.products import Trace, Weights
from louver.torch.accuracy.streams import Streams
from louver.torch.accuracy.tuning import tune
from louver.torch.report import Row


@dataclass(frozen=True, slots=True)
class Target:
    """A weight to prune. name: for the report. parameter: its name in the block.

    stack: whether it may be a stack of experts [E, …, …]: it is one if the block multiplies by its matrices.
    """

    name: str
    parameter: str
    pattern: Pattern
    stack: bool = False


@dataclass(slots=True)
class Done:
    """What the walk made of a block: by parameter, new weights and what they keep; by name of the target, its row."""

    weights: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    masks: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])


@dataclass(frozen=True, slots=True)
class Walk:
    """Prunes the blocks of a chain.

    targets: by the index of the block. tuned: steps of `tune` for each part of a block.
    finished: gives what an earlier run made of a block, which is applied as it is. keep: takes what was made of a block,
    before the block is changed. progress: is called after each block.
    """

    chain: Chain
    source: Blocks
    streams: Streams
    targets: Sequence[Sequence[Target]]
    method: Method
    tuned: int
    finished: Callable[[int, nn.Module], Done | None]
    keep: Callable[[int, Done], None]
    progress: Callable[[], None]
    permuter: Permuter | None = None

    def run(self) -> dict[str, Row]:
        """Prune all blocks. Returns the rows of the weights by name.

        Raises ArithmeticError, with the name of the layer, for NaN and infinity in activations. Then all blocks before
        are pruned, and this one and those behind it are as they were.
        """
        rows: dict[str, Row] = {}
        for index in range(len(self.chain.names)):
            block = self.source.load(index).to(self.streams.device)
            block.eval()
            try:
                done = self._done(index, block)
                self.streams.advance(block, done.weights)
                parameters = dict(block.named_parameters())
                with torch.no_grad():
                    for name, weight in done.weights.items():
                        parameters[name].copy_(weight)
            finally:
                self.source.store(index, block)
            rows |= done.rows
            self.progress()
        return rows

    def _done(self, index: int, block: nn.Module) -> Done:
        """What an earlier run made of a block, or what this one makes of it."""
        done = self.finished(index, block)
        if done is None:
            done = self._block(index, block)
            self.keep(index, done)
        return done

    def _block(self, index: int, block: nn.Module) -> Done:
        targets = {target.parameter: target for target in self.targets[index]}
        parameters = dict(block.named_parameters())
        weights = {name: parameters[name].detach() for name in targets}
        trace = self.trace(index, block, weights)
        done = Done(rows={t.name: _unseen(t, weights[t.parameter]) for t in self.targets[index] if not t.stack})
        ordered: Mapping[str, Tensor] = {}
        if self.permuter is not None:
            patterns = {name: targets[name].pattern for name in weights if name in trace.levels}
            ordered = self.permuter(self.streams, block, trace, patterns, index)
            done.weights |= ordered
            weights |= {name: ordered[name] for name in weights.keys() & ordered.keys()}
        levels = sorted(set(trace.levels.values()))
        waiting: list[str] = []
        for level in levels:
            names = [name for name in weights if trace.levels.get(name) == level]
            self._level(block, trace, {targets[name]: weights[name] for name in names}, ordered, done)
            waiting += names
            part = next((part for part in trace.parts if part.level == level), None)
            if self.tuned and (part is not None or level == levels[-1]):
                add = None if part is None or level == levels[-1] else part.add
                kept = {name: done.masks[name] for name in waiting}
                new, used = tune(self.streams, block, done.weights, kept, add, self.tuned)
                done.weights |= new
                waiting = [name for name in waiting if name not in used]
                for name in (targets[name].name for name in new):
                    done.rows[name] = replace(done.rows[name], reason=f"{done.rows[name].reason}; tuned")
        return done

    def trace(self, index: int, block: nn.Module, weights: Mapping[str, Tensor]) -> Trace:
        """Trace batch after batch until each weight was multiplied."""
        trace = Trace(Weights(weights))
        stacks = {target.parameter for target in self.targets[index] if target.stack}
        for batch in range(len(self.streams.batches) if weights else 0):
            arguments = self.streams.arguments(batch)
            given = [leaf for leaf in outputs(arguments) if isinstance(leaf, Tensor)]
            versions = [leaf._version for leaf in given]
            trace.begin(stream(given).shape, (given, list(block.parameters()), list(block.buffers())))
            with torch.no_grad(), trace:
                run(block, {}, arguments)
            trace.end()
            if versions != [leaf._version for leaf in given]:
                raise ValueError(
                    f"a block leaves its inputs as they are, got {self.chain.names[index]} that writes them"
                )
            if set(weights) <= {*trace.levels, *stacks}:
                break
        trace.adopt(weights)
        return trace

    def _level(
        self,
        block: nn.Module,
        trace: Trace,
        weights: Mapping[Target, Tensor],
        ordered: Mapping[str, Tensor],
        done: Done,
    ) -> None:
        """Prune the weights of one level, by one pass over the batches."""
        start = time.perf_counter()
        names = [target.parameter for target in weights]
        correct = self.method.correct
        collector = Collector(self.streams, block, trace, names, done.weights, correct=correct, dense=ordered)
        collector.run()
        shared = (time.perf_counter() - start) / len(weights)
        for target, weight in weights.items():
            start = time.perf_counter()
            try:
                new, mask, row = self.prune(target, weight, trace.turned[target.parameter], collector)
            except ArithmeticError as error:
                raise ArithmeticError(f"{target.name}: {error}") from None
            if target.parameter in ordered:
                row = replace(row, reason=f"{row.reason}; channels in another order")
            done.weights[target.parameter], done.masks[target.parameter] = new, mask
            done.rows[target.name] = replace(row, seconds=shared + time.perf_counter() - start)

    def prune(self, target: Target, weight: Tensor, turned: bool, collector: Collector) -> tuple[Tensor, Tensor, Row]:
        """A weight, or each expert's of a stack."""
        new, mask = torch.empty_like(weight), torch.empty_like(weight, dtype=torch.bool)
        corrected = collector.is_corrected(target.parameter)
        method = self.method if corrected else replace(self.method, correct=False)
        results: list[_Result] = []
        for expert in range(len(weight)) if weight.dim() == 3 else [None]:
            matrices = [t if expert is None else t[expert] for t in (weight, new, mask)]
            w, out, kept = (matrix.mT if turned else matrix for matrix in matrices)
            statistics = collector.of(target.parameter, expert, w.shape[1])
            mine, instead = method, ""
            if collector.is_routed(target.parameter) and method.calibrated and statistics.tokens < w.shape[1]:
                instead = "wanda" if statistics.tokens else "magnitude"
                mine = Method(instead, transposable=method.transposable)
            results.append(_prune_one(w, out, kept, target.pattern, mine, statistics, instead))
        shape = (weight.shape[-1 if turned else -2], weight.shape[-2 if turned else -1])
        row = _row(target, weight, shape, mask, results, method)
        if self.method.correct and not corrected:
            row = replace(row, warnings=(*row.warnings, "not corrected: the dense model gives it other rows"))
        return new, mask, row


@dataclass(frozen=True, slots=True)
class _Result:
    """What is told of a matrix. instead: the method that took the place of the wanted one, "" if none."""

    error: float | None
    damping: float | None
    raised: float
    tokens: int
    held_out: Mapping[str, float]
    instead: str


def _prune_one(
    w: Tensor, out: Tensor, kept: Tensor, pattern: Pattern, method: Method, statistics: Statistics, instead: str
) -> _Result:
    """Prune one matrix into `out` and `kept`."""
    texts = statistics.held_out
    pruned = prune_matrix(
        w, pattern, method, statistics.calibration if statistics.tokens else None, list(texts.values())
    )
    out.copy_(pruned.weight)
    kept.copy_(pruned.mask)
    with products(w.device):
        errors = {text: relative_error(w.float(), pruned.weight, moments) for text, moments in texts.items()}
    return _Result(pruned.error, pruned.damping, pruned.raised, statistics.tokens, errors, instead)


def _row(
    target: Target, weight: Tensor, shape: tuple[int, int], mask: Tensor, results: Sequence[_Result], method: Method
) -> Row:
    """The row of a weight, or of a stack: errors are means over its experts, damping is the largest."""
    tokens = [result.tokens for result in results]
    dampings = [result.damping for result in results if result.damping is not None]
    warnings = [
        f"{_experts(results, name)}under {shape[1]} tokens: by {name} alone"
        for name in dict.fromkeys(result.instead for result in results if result.instead)
    ]
    if not warnings and method.calibrated and max(tokens) < shape[1]:
        warnings.append(f"{max(tokens)} tokens for {shape[1]} input features: calibrate with more text")
    if raised := max(result.raised for result in results):
        warnings.append(f"damping raised by {raised:.1e}, the inputs depend on each other linearly")
    texts = dict.fromkeys(text for result in results for text in result.held_out)
    size = weight.numel() * weight.itemsize
    return Row(
        target.name,
        "pruned",
        "; ".join([f"by {method}", *warnings]),
        shape,
        str(target.pattern),
        (size, size),
        method=method.name,
        zeros=1 - float(mask.double().mean()),
        error=_mean([result.error for result in results]),
        held_out={text: _mean([result.held_out.get(text) for result in results]) or 0.0 for text in texts},
        damping=max(dampings, default=None),
        raised=raised,
        tokens=sum(tokens),
        warnings=tuple(warnings),
    )


def _unseen(target: Target, weight: Tensor) -> Row:
    size = weight.numel() * weight.itemsize
    shape = (weight.shape[0], weight.shape[1])
    return Row(target.name, "dense", "its block never multiplied by it in PyTorch", shape, bytes=(size, size))


def _experts(results: Sequence[_Result], instead: str) -> str:
    """The experts of a stack for which this method took the place of the wanted one."""
    if len(results) == 1:
        return ""
    numbers = [str(expert) for expert, result in enumerate(results) if result.instead == instead]
    return f"expert{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}: "


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
