"""Distillation block by block: each pruned block, on the pruned model's stream, against the dense block on its own."""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from louver.torch.accuracy.blocks import Resident, find_chains, outputs, run, stream
from louver.torch.accuracy.course import Options
from louver.torch.accuracy.distill_report import Distillation, Point, Shown
from louver.torch.accuracy.loop import Saved
from louver.torch.accuracy.streams import Streams, batches
from louver.torch.accuracy.text import evaluating
from louver.torch.accuracy.trained import Trained


class BlockRun:
    """Trains the blocks of a model, one after the other. Two blocks are on the device: the pruned one and the dense one.

    `values` has what was trained, by name, in the model's own types and on the host.
    """

    def __init__(
        self,
        model: nn.Module,
        dense: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        masks: Mapping[str, Tensor],
        options: Options,
        rate: float,
        saved: Callable[[str], Saved | None],
    ) -> None:
        """parameters, masks: of the model, by name. saved: where a block of this name is saved.

        Raises ValueError if a block of the dense model has other parameters than the pruned model's.
        """
        self._model, self._dense, self._parameters, self._masks = model, dense, parameters, masks
        self._rate, self._saved = rate, saved
        self._chains = find_chains(dense)
        mine = {name: p.shape for name, p in model.named_parameters()}
        for chain in self._chains:
            for name in chain.names:
                for part, p in dense.get_submodule(name).named_parameters():
                    if mine.get(f"{name}.{part}") != p.shape:
                        raise ValueError(
                            f"blocks of a model and its teacher have the same parameters, got {name}.{part} {list(p.shape)} of "
                            "the teacher alone: call decompress_(model) first if layers are sparse"
                        )
        self._count = sum(len(chain.names) for chain in self._chains)
        self._options = options if options.minutes is None else replace(options, minutes=options.minutes / self._count)
        self.values: dict[str, Tensor] = {}
        self.curve: list[Point] = []
        self.steps, self.tokens, self.notes = 0, 0, ()
        self._size = 0

    def go(self, text: Tensor, device: torch.device, shown: Shown) -> None:
        """Train all blocks on rows of tokens."""
        begin, self._size = time.monotonic(), text.numel()
        with evaluating(self._dense):
            home = next(self._dense.parameters()).device
            made = batches({"text": text.to(home)}, False)
            for chain in self._chains:
                source = Resident(self._dense, chain)
                streams = Streams(self._dense, chain, source, made, device, dense=True)
                for index, name in enumerate(chain.names):
                    block = source.load(index).to(device)
                    weights, loss = self._block(name, block, streams)
                    streams.advance(block, weights)
                    source.store(index, block)
                    self.curve.append(Point(self.steps, self.tokens, time.monotonic() - begin, loss))
                    shown.step(self.curve[-1], len(self.curve) / self._count)

    def report(self, prepared: float) -> Distillation:
        """What was done. prepared: seconds before."""
        size = sum(mask.numel() for mask in self._masks.values())
        kept = sum(int(mask.sum()) for mask in self._masks.values())
        return Distillation(
            parts="blocks",
            curve=tuple(self.curve),
            steps=self.steps,
            tokens=self.tokens,
            seconds=self.curve[-1].seconds,
            prepared_seconds=prepared,
            rate=self._rate,
            passes=self.tokens / (self._count * self._size),
            held_out=None,
            masked=len(self._masks),
            zeros=1 - kept / size,
            moved=0.0,
            notes=self.notes,
        )

    def _block(self, name: str, block: nn.Module, streams: Streams) -> tuple[dict[str, Tensor], float]:
        """The weights of a trained block, and its loss on all text."""
        kinds = dict(block.named_parameters())
        mine = dict(self._model.get_submodule(name).named_parameters())
        working = {part: nn.Parameter(p.detach().to(kinds[part], copy=True), False) for part, p in mine.items()}
        trained = {part: p for part, p in working.items() if f"{name}.{part}" in self._parameters}
        for parameter in trained.values():
            parameter.requires_grad_()
        saved = self._saved(name)
        known: dict[str, Any] | None = None if saved is None else saved.load()
        if known is None:
            before = self._error(block, working, streams)
            known = {"values": {}, "steps": 0, "tokens": 0, "loss": before}
            if trained:
                known |= self._trained(name, block, working, trained, streams, before)
            if not math.isfinite(known["loss"]):
                raise ArithmeticError(
                    f"{name}: the error of its output is finite, got {known['loss']}: look for NaN in the model or its teacher"
                )
            if saved is not None:
                saved.save(known)
        self.steps, self.tokens = self.steps + known["steps"], self.tokens + known["tokens"]
        for part, value in known["values"].items():
            self.values[f"{name}.{part}"] = value.to(mine[part].dtype)
            with torch.no_grad():
                working[part].copy_(value)
        return {part: p.detach() for part, p in working.items()}, known["loss"]

    def _trained(
        self,
        name: str,
        block: nn.Module,
        working: Mapping[str, nn.Parameter],
        parameters: Mapping[str, nn.Parameter],
        streams: Streams,
        before: float,
    ) -> dict[str, Any]:
        """Train a block. Values that are no better than those before are dropped."""
        masks = {
            part: self._masks[f"{name}.{part}"].to(p.device)
            for part, p in parameters.items()
            if f"{name}.{part}" in self._masks
        }
        old = [p.detach().clone() for p in parameters.values()]
        trained = Trained(parameters, [p.detach().float() for p in parameters.values()], masks, {})
        step, tokens, begin = 0, 0, time.monotonic()
        while (done := self._options.done(step, time.monotonic() - begin)) < 1:
            batch = step % len(streams.batches)
            with torch.enable_grad():
                self._loss(block, working, streams, batch).backward()
            trained.step(self._options.rate_at(self._rate, step, done))
            step, tokens = step + 1, tokens + streams.batches[batch].rows.numel()
        after = self._error(block, working, streams)
        better = not after >= before
        values = {part: value.cpu() for part, value in trained.values()} if better else {}
        if not better:
            with torch.no_grad():
                for parameter, value in zip(parameters.values(), old, strict=True):
                    parameter.copy_(value)
        return {"values": values, "steps": step, "tokens": tokens, "loss": after if better else before}

    def _error(self, block: nn.Module, working: Mapping[str, Tensor], streams: Streams) -> float:
        """The mean loss over all text."""
        with torch.no_grad():
            losses = [self._loss(block, working, streams, batch) for batch in range(len(streams.batches))]
            return torch.stack(losses).double().mean().item()

    def _loss(self, block: nn.Module, working: Mapping[str, Tensor], streams: Streams, batch: int) -> Tensor:
        with torch.no_grad():
            wanted = stream(outputs(run(block, {}, streams.arguments(batch, dense=True)))).float()
        got = stream(outputs(run(block, working, streams.arguments(batch)))).float()
        # Token by token over the mean square, as the norm behind the block sees it.
        scale = wanted.square().mean(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        return ((got - wanted).square() / scale).mean()
