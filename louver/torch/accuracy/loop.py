"""The loop of a distillation: steps that do not wait for the device, a look at the loss now and then, and its state."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import gc
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from louver.torch.accuracy.course import Options, Order
from louver.torch.accuracy.distill_report import Distillation, Point, Shown
from louver.torch.accuracy.graphed import Body, graph
from louver.torch.accuracy.scores import Head, divergence, reduce_scores
from louver.torch.accuracy.trained import Trained
from louver.torch.accuracy.working import DenseStates, compile_blocks, uncompile


def fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """A hash of names, types, shapes and values of tensors."""
    found = hashlib.sha256()
    for name, tensor in tensors:
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        found.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy().data)
    return found.hexdigest()


class Saved:
    """The state of a run in a folder. key: what must be equal for the run to go on, by name."""

    def __init__(self, folder: str | os.PathLike[str], name: str, key: Mapping[str, Any]) -> None:
        self._path = Path(folder) / f"{name}.pt"
        self._key = dict(key)

    def load(self) -> dict[str, Any] | None:
        """What was saved last; None if nothing was. Raises ValueError if it is of another run."""
        if not self._path.exists():
            return None
        saved = torch.load(self._path, map_location="cpu", weights_only=True)
        other = [name for name, value in self._key.items() if saved["key"].get(name) != value]
        if other:
            raise ValueError(
                f"resume={str(self._path.parent)!r} goes on with a run of the same model, data and options, got other "
                f"{', '.join(other)}: give another folder, or delete {self._path.name} in it"
            )
        return saved["state"]

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace what was saved."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            torch.save({"key": self._key, "state": dict(state)}, part)
            os.replace(part, self._path)
        finally:
            part.unlink(missing_ok=True)


LOOK: Final = 20
"""Steps from one look at the loss to the next. A look waits for the device."""

MOVE: Final = 10
"""Steps from one choice of moving masks to the next."""

CLOSE: Final = 0.05, 1e-3
"""Most difference of loss and gradient between ways to run the blocks, relative and absolute: they round differently."""

SAVE_SECONDS: Final = 30.0


class Run:
    """A training run of a working copy."""

    def __init__(
        self,
        head: Head,
        dense: Head,
        trained: Trained,
        text: Tensor,
        options: Options,
        rate: float,
        saved: Saved | None,
        notes: list[str],
    ) -> None:
        self._head, self._dense, self._trained, self._options = head, dense, trained, options
        self._rate, self._saved, self._notes = rate, saved, notes
        self._before = [mask.bool() for mask in trained.masks]
        self._device = next(head.model.parameters()).device
        self._text = text.to(self._device)
        free = torch.cuda.mem_get_info(self._device)[0] if self._device.type == "cuda" else 0
        # On a CPU nothing is kept, so that bits do not depend on where a run was resumed.
        self._states = DenseStates(dense, self._text, free // 4)
        self._order = Order(len(text), options.batch, options.seed)
        self._reduce: Any = torch.compile(reduce_scores, dynamic=False) if free else reduce_scores
        self._body: Body | None = None
        self._curve: list[Point] = []
        self._losses: list[Tensor] = []
        self._step, self._tokens, self._seconds, self._prepared = 0, 0, 0.0, 0.0
        self._held_out: float | None = None

    def warm(self) -> None:
        """Find the fastest way to run that works, and load what was saved.

        On a GPU: all blocks in CUDA graphs; compiled blocks; blocks as written. Notes say why a way was left.
        """
        loaded = None if self._saved is None else self._saved.load()
        if self._device.type == "cuda":
            self._settle()
        if loaded is not None:
            self._trained.load(loaded["trained"])
            self._order.load(loaded["order"])
            self._step, self._tokens, self._seconds = loaded["step"], loaded["tokens"], loaded["seconds"]
            self._curve = [Point(*each) for each in loaded["curve"]]

    def close(self) -> None:
        """Give back the memory of graphs."""
        if self._body is not None:
            self._body.leave()
            self._body = None
        self._trained.close()
        if self._device.type == "cuda":
            # A body and its graph refer to each other.
            gc.collect()
            torch.cuda.empty_cache()

    def _settle(self) -> None:
        model = self._head.model
        # Ways are left behind an `except`, which would keep the tensors of the failed one.
        if failed := _failure(self._by_graph):
            if self._body is not None:
                self._body.leave()
                self._body = None
            self._notes.append(f"no CUDA graph of the blocks: {failed}")
            if failed := _failure(lambda: compile_blocks(model) or self._probe()):
                self._notes.append(f"not compiled: {failed}")
                uncompile((model, self._dense.model))
                self._reduce = reduce_scores
                self._probe()

    def _by_graph(self) -> None:
        """Let CUDA graphs run the blocks. Raises an error if they give another loss or gradient."""
        # The teacher runs too, which compiles it.
        expected = self._probe()
        rows = torch.arange(min(self._options.batch, len(self._text)), device=self._device)
        self._body = Body(self._head.model, self._text[rows], lambda forward: torch.compile(forward, dynamic=False))
        self._body.enter(graph(self._body))
        got = self._probe()
        if not all(abs(a - b) <= CLOSE[0] * abs(a) + CLOSE[1] for a, b in zip(expected, got, strict=True)):
            raise ArithmeticError(f"loss and norm of the gradient are {expected}, got {got}")

    def _probe(self) -> tuple[float, float]:
        """The loss of the first rows, and the norm of its gradient."""
        loss = self._loss(torch.arange(min(self._options.batch, len(self._text))))
        loss.backward()
        found = [p.grad for p in self._head.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(found).item()
        for parameter in self._head.model.parameters():
            parameter.grad = None
        return loss.item(), norm

    def go(self, prepared: float, shown: Shown) -> None:
        """Train to the end, then look at the rows that no step read."""
        self._prepared = prepared
        already, begin, kept = self._seconds, time.monotonic(), time.monotonic()
        while (done := self._options.done(self._step, self._seconds)) < 1:
            self._move(done)
            rows = self._order.next()
            loss = self._loss(rows)
            loss.backward()
            self._trained.step(self._options.rate_at(self._rate, self._step, done))
            self._losses.append(loss.detach())
            self._step += 1
            self._tokens += rows.numel() * self._text.shape[1]
            self._seconds = already + time.monotonic() - begin
            last = self._options.done(self._step, self._seconds) >= 1
            if not last and self._step % LOOK:
                continue
            self._look(already - begin)
            shown.step(self._curve[-1], self._options.done(self._step, self._seconds))
            if self._saved is not None and (last or time.monotonic() - kept >= SAVE_SECONDS):
                kept = time.monotonic()
                self._saved.save(self._state())
        losses = [self._loss(rows).detach() for rows in self._order.held]
        self._held_out = torch.stack(losses).double().mean().item() if losses else None

    def report(self) -> Distillation:
        """What was done."""
        masks = [mask.bool() for mask in self._trained.masks]
        kept = sum(int(mask.sum()) for mask in masks)
        both = sum(int((mask & old).sum()) for mask, old in zip(masks, self._before, strict=True))
        size = sum(mask.numel() for mask in masks)
        return Distillation(
            parts="model",
            curve=tuple(self._curve),
            steps=self._step,
            tokens=self._tokens,
            seconds=self._seconds,
            prepared_seconds=self._prepared,
            rate=self._rate,
            passes=self._tokens / (self._order.rows * self._text.shape[1]),
            held_out=self._held_out,
            masked=len(masks),
            zeros=1 - kept / size if size else 0.0,
            moved=1 - both / kept if kept else 0.0,
            notes=(*self._notes, *self._trained.notes),
        )

    def _loss(self, rows: Tensor) -> Tensor:
        on_device = rows.to(self._device, non_blocking=True)
        dense = self._states(rows, on_device)
        hidden = self._head.hidden(self._text[on_device])
        return divergence(hidden.flatten(0, 1), dense.flatten(0, 1), self._head, self._dense, self._reduce)

    def _move(self, done: float) -> None:
        if self._trained.moves and done >= 0.5:
            self._trained.settle()
        elif self._trained.moves and self._step and self._step % MOVE == 0:
            self._trained.move()

    def _look(self, since: float) -> None:
        """Put the steps since the last look on the curve. since: seconds at which the clock stood at zero."""
        losses = torch.stack(self._losses).double().tolist()
        self._losses.clear()
        self._seconds = since + time.monotonic()
        if not all(map(math.isfinite, losses)):
            raise ArithmeticError(
                f"the divergence of each step is finite, got {next(x for x in losses if not math.isfinite(x))} among the steps to "
                f"{self._step} at a rate of {self._rate:.2g}: give a lower rate, or a model and a teacher without NaN"
            )
        self._curve.append(Point(self._step, self._tokens, self._seconds, sum(losses) / len(losses)))

    def _state(self) -> dict[str, Any]:
        curve = [(each.step, each.tokens, each.seconds, each.loss) for each in self._curve]
        return {
            "trained": self._trained.state(),
            "order": self._order.state(),
            "step": self._step,
            "tokens": self._tokens,
            "seconds": self._seconds,
            "curve": curve,
        }


def _failure(way: Callable[[], object]) -> str:
    """The first line of the error that a way to run ends with, "" if it works."""
    try:
        way()
    except Exception as error:
        lines = str(error).splitlines()
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return ""
