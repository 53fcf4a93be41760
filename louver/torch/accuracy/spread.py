"""Activations between two blocks in files, and blocks that run on them by many processes. The sums are those of one."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from louver.models.workers import Task, Workers
from louver.torch.accuracy.blocks import Blocks, Call, Chain
from louver.torch.accuracy.moments import Moments
from louver.torch.accuracy.passes import AdvanceBatch, CollectBatch, Fit, Site, stored_leaves
from louver.torch.accuracy.stored import Stored, store
from louver.torch.accuracy.streams import Batch, Key, Streams, UnpairedError, Watch

T = TypeVar("T")


@contextmanager
def place_of(work: Path) -> Generator[Path]:
    """A folder for the tensors that pass between the processes of one run. That of a run that was killed is removed."""
    for old in work.glob("passing-*"):
        shutil.rmtree(old, ignore_errors=True)
    place = work / f"passing-{secrets.token_hex(8)}"
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        # A run that was refused leaves nothing.
        with suppress(OSError):
            work.rmdir()


class SpreadStreams(Streams):
    """Streams whose tensors are in files. A batch is a task, so that workers may end in any order."""

    def __init__(
        self,
        model: nn.Module,
        chain: Chain,
        source: Blocks,
        batches: Sequence[Batch],
        device: torch.device,
        *,
        dense: bool,
        workers: Workers,
        site: Site,
    ) -> None:
        self._workers, self._site, self._index = workers, site, 0
        self._known: Any = WeakIdKeyDictionary()
        workers.everywhere(Fit(site))
        for name in ("calls", "0"):
            (site.place / name).mkdir()
        super().__init__(model, chain, source, batches, device, dense=dense)

    def collect(self, block: nn.Module, watch: Watch) -> Generator[dict[Key, Moments]]:
        new, dense = self._stored(watch.new), self._stored(watch.dense)
        bare = replace(watch, new={}, dense={})
        tasks = [
            CollectBatch(self._site, self._index, self._arguments(batch), bare, new, dense, self._folder)
            for batch in range(len(self.batches))
        ]
        for summed in self._done(tasks):
            if summed.unpaired is not None:
                raise UnpairedError(summed.unpaired)
            found = summed.sums.items()
            yield {
                key: Moments.of(count, {name: each.to(self.device) for name, each in sums.items()})
                for key, (count, sums) in found
            }
            for path in {each.path for _, (_, sums) in found for each in sums.values()}:
                path.unlink()

    def advance(self, block: nn.Module, weights: Mapping[str, Tensor]) -> None:
        if len(self._calls[0]) > 1:
            after = self._site.place / str(self._index + 1)
            after.mkdir()
            new = self._stored(weights)
            tasks = [
                AdvanceBatch(self._site, self._index, self._arguments(batch), new, frozenset(calls[1].carried), after)
                for batch, calls in enumerate(self._calls)
            ]
            for batch, states in enumerate(self._done(tasks)):
                for dense, state in states.items():
                    self._states[dense][batch] = state
        for calls in self._calls:
            calls.popleft()
        shutil.rmtree(self._folder)
        self._known.clear()
        self._index += 1

    def _placed(self, call: Call) -> Call:
        return replace(call, leaves=tuple(self._kept_once(leaf) for leaf in call.leaves))

    def _kept_once(self, leaf: Any) -> Any:
        """Masks and tables that blocks and batches share are written once."""
        if not isinstance(leaf, Tensor):
            return leaf
        if leaf not in self._known:
            (self._known[leaf],) = stored_leaves(self._site.place / "calls", [leaf])
        return self._known[leaf]

    def _stored(self, weights: Mapping[str, Tensor]) -> dict[str, Stored]:
        """Files of new weights of the present block, written once."""
        fresh = {name: weight for name, weight in weights.items() if weight not in self._known}
        for name, each in store(self._folder, fresh).items():
            self._known[weights[name]] = each
        return {name: self._known[weight] for name, weight in weights.items()}

    def _arguments(self, batch: int) -> dict[bool, Any]:
        return {dense: self._calls[batch][0].filled(states[batch]) for dense, states in self._states.items()}

    @property
    def _folder(self) -> Path:
        return self._site.place / str(self._index)

    def _done(self, tasks: Sequence[Task[T]]) -> Generator[T]:
        """The one fact of each task, in their order."""
        known: dict[int, T] = {}
        for number, facts in self._workers.each(tasks, self._site.needs):
            (known[number],) = facts
        for number in range(len(tasks)):
            yield known.pop(number)
