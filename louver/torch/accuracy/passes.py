"""The tasks of a calibrated run by many processes: one block on one batch. Activations and sums pass by files."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.checkpoint import Checkpoint, open_checkpoint
from louver.models.analyze import analyze
from louver.models.pruning import PruneOptions
from louver.models.shards import RULE
from louver.models.workers import Needs, WorkersError
from louver.torch.accuracy.blocks import moved, outputs, run
from louver.torch.accuracy.folder import Folder
from louver.torch.accuracy.stored import Stored, store
from louver.torch.accuracy.streams import Key, UnpairedError, Watch


@dataclass(frozen=True, slots=True)
class Site:
    """Where and how all processes of a run compute.

    source: the checkpoint. identity: of its files, see `identity_of`. options, blocks: what makes its `Folder`.
    device: the kind of device and, for one machine, its number. threads: of a process, by which sums on a CPU round.
    torch: PyTorch's version. place: the folder of the run's tensors.
    """

    source: Path
    identity: str
    options: PruneOptions
    blocks: str
    device: str
    threads: int
    torch: str
    place: Path

    @property
    def needs(self) -> Needs:
        """What a process takes of its machine."""
        return Needs(self.threads, int(self.device.startswith("cuda")))

    def check(self) -> Checkpoint:
        """The checkpoint as this machine sees it. Raises WorkersError for a machine that cannot take part."""
        if torch.__version__ != self.torch:
            raise WorkersError(
                f"all machines have one PyTorch, got {torch.__version__} here and {self.torch} in the run: install the same"
            )
        try:
            checkpoint = open_checkpoint(self.source)
        except FileNotFoundError as error:
            raise WorkersError(f"{self.source} is not on this machine: {RULE}") from error
        if identity_of(checkpoint) != self.identity:
            raise WorkersError(f"{self.source} is another checkpoint on this machine: {RULE}")
        if not self.place.is_dir():
            raise WorkersError(f"{self.place} is not on this machine: {RULE}")
        return checkpoint

    @contextmanager
    def block(self, index: int) -> Generator[tuple[nn.Module, torch.device]]:
        """A block of the model, and the device that it is on."""
        torch.set_num_threads(self.threads)
        with torch.no_grad():
            folder = _opened(self)
            yield folder.only(index), folder.device


@functools.lru_cache(maxsize=1)
def _opened(site: Site) -> Folder:
    """The model without blocks. A process keeps it, and its last block: a run has thousands of tasks."""
    checkpoint = site.check()
    facts = analyze(site.source, site.options.choice, site.options.pattern)
    return Folder(checkpoint, facts, _place(site.device), site.blocks, outside=False)


def _place(text: str) -> torch.device:
    """The device of a process. Ray numbers the GPUs of a task from 0. Raises WorkersError without a GPU."""
    device = torch.device(text)
    if device.type != "cuda":
        return device
    if not (count := torch.cuda.device_count()):
        raise WorkersError(
            f"a process computes on {text}, got a machine without a GPU: leave it out, or give --device cpu"
        )
    return torch.device("cuda", (device.index or 0) % count)


def identity_of(checkpoint: Checkpoint) -> str:
    """Sizes, times and headers of a checkpoint's files, which are those of the run on each machine."""
    seen = [(file.path.name, *file.identity[:2], file.identity[-1]) for file in checkpoint.files]
    return hashlib.sha256(repr(seen).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Fit:
    """A task that looks whether a machine can take part."""

    site: Site

    def run(self) -> Generator[None]:
        """Raises WorkersError if it cannot."""
        self.site.check()
        yield None


@dataclass(frozen=True, slots=True)
class Summed:
    """The sums of one batch, or the name of a weight that is not paired. sums: number of tokens, and sums by name."""

    sums: Mapping[Key, tuple[int, Mapping[str, Stored]]]
    unpaired: str | None = None


@dataclass(frozen=True, slots=True)
class CollectBatch:
    """A task that collects the moments of a block's inputs, for one batch.

    arguments: of the block in the pruned and in the dense model (True), with files in the place of tensors. new, dense:
    see `watch`, which has none. out: the folder for sums.
    """

    site: Site
    index: int
    arguments: Mapping[bool, Any]
    watch: Watch
    new: Mapping[str, Stored]
    dense: Mapping[str, Stored]
    out: Path

    def run(self) -> Generator[Summed]:
        """Yields where the sums are. Raises WorkersError and OSError."""
        with self.site.block(self.index) as (block, device):
            watch = replace(self.watch, new=_here(self.new, device), dense=_here(self.dense, device))
            try:
                found = watch.moments(block, lambda dense: moved(self.arguments[dense], device), device)
            except UnpairedError as error:
                yield Summed({}, error.name)
                return
            named = {(key, name): total for key, moments in found.items() for name, total in moments.sums.items()}
            stored = store(self.out, {str(number): total for number, total in enumerate(named.values())})
            of = dict(zip(named, stored.values(), strict=True))
            yield Summed(
                {key: (moments.count, {name: of[key, name] for name in moments.sums}) for key, moments in found.items()}
            )


@dataclass(frozen=True, slots=True)
class AdvanceBatch:
    """A task that runs a block on one batch: with new weights for the pruned model, with its own for the dense one.

    arguments: see `CollectBatch`. carried: the outputs that the next block is given. out: the folder for them.
    """

    site: Site
    index: int
    arguments: Mapping[bool, Any]
    weights: Mapping[str, Stored]
    carried: frozenset[int]
    out: Path

    def run(self) -> Generator[Mapping[bool, list[Any]]]:
        """Yields the state behind the block. Raises WorkersError and OSError."""
        with self.site.block(self.index) as (block, device):
            new = _here(self.weights, device)
            states = {
                dense: outputs(run(block, {} if dense else new, moved(arguments, device)))
                for dense, arguments in self.arguments.items()
            }
            yield {dense: stored_leaves(self.out, state, self.carried) for dense, state in states.items()}


def stored_leaves(folder: Path, leaves: Sequence[Any], wanted: frozenset[int] | None = None) -> list[Any]:
    """Leaves with files in the place of tensors. wanted: their numbers; others are None."""
    kept = [leaf if wanted is None or at in wanted else None for at, leaf in enumerate(leaves)]
    stored = store(folder, {str(at): leaf for at, leaf in enumerate(kept) if isinstance(leaf, Tensor)})
    return [stored.get(str(at), leaf) for at, leaf in enumerate(kept)]


def _here(stored: Mapping[str, Stored], device: torch.device) -> dict[str, Tensor]:
    return {name: each.to(device) for name, each in stored.items()}
