"""Calibrated pruning of a model: which weights, by which text, chain of blocks after chain of blocks."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.blocks import Blocks, Chain, chains_of, weights_of
from louver.torch.accuracy.free import Permuter
from louver.torch.accuracy.matrix import Method
from louver.torch.accuracy.resume import Resume, digest
from louver.torch.accuracy.streams import Streams, batches
from louver.torch.accuracy.text import evaluating
from louver.torch.accuracy.walk import Target, Walk
from louver.torch.layers import Layer, linear_layers
from louver.torch.report import Report, Row
from louver.torch.swap import as_lines, misfit, refusal, row_of

HELD_OUT: Final = 8
"""One row of so many of a calibration text is held out, at its end."""

_CHECKED: Final = 16
"""Tokens of the run that checks a chain."""

Progress = Callable[[int, int, float], object]
"""Is called with the finished blocks, all blocks, and the seconds that the others may take."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to prune a model, see `prune_`. per_layer: patterns by the name of a layer, None for dense."""

    pattern: Pattern
    method: Method
    tune: int = 0
    skip: tuple[str, ...] = ()
    per_layer: Mapping[str, Pattern | None] | None = None
    blocks: str | None = None
    permute: bool = False

    def __post_init__(self) -> None:
        if type(self.tune) is not int or self.tune < 0:
            raise ValueError(f"tune is a number of steps, 0 or more, got {self.tune!r}")
        if type(self.permute) is not bool:
            raise ValueError(f"permute is True or False, got {self.permute!r}")
        for pattern in {self.pattern, *(self.per_layer or {}).values()}:
            if pattern is not None:
                self.method.check(pattern)

    def pattern_of(self, name: str) -> Pattern | None:
        """The pattern of a layer, None if it stays dense."""
        return self.pattern if self.per_layer is None else self.per_layer.get(name, self.pattern)

    def check_names(self, names: Sequence[str]) -> None:
        """Raises ValueError if `per_layer` names something else."""
        unknown = [name for name in self.per_layer or () if name not in names]
        if unknown:
            shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
            raise ValueError(f"per_layer names linear layers, got {unknown[0]!r}; the layers are {shown}")

    def refusal(self, layer: Layer, *, loaded: bool) -> str | None:
        """Why a layer stays dense."""
        pattern = self.pattern_of(layer.name)
        if reason := refusal(layer, self.skip):
            return reason
        if pattern is None:
            return "per_layer leaves it dense"
        if reason := misfit(layer, pattern, loaded=loaded):
            return reason
        if type(layer.stored) is not nn.Parameter:
            return f"its weight is a {type(layer.stored).__name__}: prune the model before it is distributed or wrapped"
        return None


def calibrate(
    model: nn.Module,
    options: Options,
    calibration: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor],
    *,
    source: Callable[[Chain], Blocks] | None = None,
    streamed: Callable[..., Streams] = Streams,
    resume: Callable[[Mapping[str, str]], Resume] | None = None,
    device: torch.device,
    progress: Progress | None = None,
) -> Report:
    """Prune a model's blocks by texts, in place; see `prune_`.

    calibration, held_out: checked rows by the name of the text. source: where the blocks of a chain come from, if they
    are not in the model's memory; all other parameters are, and there is one chain. streamed: makes the chains' `Streams`. resume: makes what keeps finished
    blocks, for a key. device: where blocks are pruned.
    """
    absent = next((name for name, parameter in model.named_parameters() if parameter.is_meta), None)
    if source is None and absent is not None:
        raise ValueError(f"a model has its weights in memory, got {absent} on the meta device: load the weights first")
    with evaluating(model):
        of_chain = chains_of(model, options.blocks, _short(next(iter(calibration.values()))), source)
        chains = tuple(of_chain)
        features = max(max(p.shape[-2:]) for chain in chains for p in weights_of(model, chain))
        texts = [*batches(calibration, False, features), *batches(held_out, True, features)]
        plan = Plan(model, options, chains, loaded=source is None)
        saved = None if resume is None else resume(_key(model, options, plan, calibration, held_out, chains))
        total, shown = sum(len(chain.names) for chain in chains), _Shown(progress)
        rows: dict[str, Row] = {}
        for chain, blocks in of_chain.items():
            streams = streamed(model, chain, blocks, texts, device, dense=options.method.correct or options.tune > 0)
            names = chain.names
            walk = Walk(
                chain,
                blocks,
                streams,
                [plan.targets[name] for name in names],
                options.method,
                options.tune,
                lambda index, block, names=names: None if saved is None else saved.finished(names[index], block),
                lambda index, done, names=names: None if saved is None else saved.keep(names[index], done),
                lambda: shown.step(total),
                Permuter() if options.permute else None,
            )
            rows |= walk.run()
    return Report(tuple(plan.ordered(rows)))


class Plan:
    """The weights to prune by the name of their block, and the rows of layers that stay dense."""

    def __init__(self, model: nn.Module, options: Options, chains: Sequence[Chain], *, loaded: bool) -> None:
        self.targets: dict[str, list[Target]] = {name: [] for chain in chains for name in chain.names}
        self._rows: dict[str, Row | None] = {}
        layers = linear_layers(model)
        users = _users(model, list(self.targets))
        refused: list[tuple[Layer, str | None]] = []
        for layer in layers:
            block = next((name for name in self.targets if f"{layer.name}.".startswith(f"{name}.")), None)
            reason = options.refusal(layer, loaded=loaded)
            if reason is None and block is None:
                reason = f"outside of {' and '.join(repr(chain.name) for chain in chains)}: prune it by magnitude"
            elif reason is None and len(users[id(layer.module.weight)]) > 1:
                reason = f"it runs in {' and '.join(users[id(layer.module.weight)])}"
            refused.append((layer, reason))
            pattern = options.pattern_of(layer.name)
            if reason is None and block is not None and pattern is not None:
                parameter = f"{layer.name}.weight".removeprefix(f"{block}.")
                self.targets[block].append(Target(layer.name, parameter, pattern))
            self._rows[layer.name] = None if reason is None else row_of(layer, "dense", reason)
        self._add_stacks(model, options)
        options.check_names(list(self._rows))
        if not any(self.targets.values()):
            raise ValueError(f"no linear layer is left to prune to {options.pattern}, got\n{as_lines(refused)}")

    @property
    def names(self) -> list[str]:
        """All linear layers and possible stacks of experts, those that stay dense too."""
        return list(self._rows)

    def _add_stacks(self, model: nn.Module, options: Options) -> None:
        """Parameters [E, …, …] may be stacks of experts. Whether they are, the block's run shows."""
        for block, targets in self.targets.items():
            for name, parameter in model.get_submodule(block).named_parameters():
                full = f"{block}.{name}"
                pattern = options.pattern_of(full)
                if parameter.dim() != 3 or not parameter.is_floating_point():
                    continue
                self._rows[full] = None
                skipped = any(fnmatchcase(full, text) for text in options.skip)
                if pattern is not None and not skipped and min(parameter.shape[1:]) >= pattern.m:
                    targets.append(Target(full, name, pattern, stack=True))

    def ordered(self, made: Mapping[str, Row]) -> list[Row]:
        """All rows, in the order of the model: those made by the walk, and those of layers that stay dense."""
        rows = [made.get(name, row) for name, row in self._rows.items()]
        return [row for row in rows if row is not None]


def _users(model: nn.Module, blocks: Sequence[str]) -> dict[int, list[str]]:
    """By the identity of a parameter, the blocks that have it."""
    users: dict[int, list[str]] = {}
    for block in blocks:
        for _, parameter in model.get_submodule(block).named_parameters():
            users.setdefault(id(parameter), []).append(block)
    for parameter in model.parameters():
        users.setdefault(id(parameter), [])
    return users


def _key(
    model: nn.Module,
    options: Options,
    plan: Plan,
    calibration: Mapping[str, Tensor],
    held_out: Mapping[str, Tensor],
    chains: Sequence[Chain],
) -> dict[str, str]:
    """What must be equal for a run to go on. Each block's weights are compared when it is loaded."""
    blocks = tuple(f"{name}." for chain in chains for name in chain.names)
    outside = [pair for pair in model.named_parameters() if not pair[0].startswith(blocks)]
    text = hashlib.sha256()
    for kind, texts in (("calibration", calibration), ("held out", held_out)):
        for name, rows in texts.items():
            text.update(f"{kind} {name} {rows.dtype} {list(rows.shape)}\n".encode())
            text.update(rows.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return {
        "model": f"{type(model).__name__} {digest(outside)}",
        "method": f"{options.method} tune={options.tune} permute={options.permute}",
        "choice of layers": hashlib.sha256(repr(plan.targets).encode()).hexdigest(),
        "text": text.hexdigest(),
    }


def split(texts: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The rows to calibrate on, and the last eighth of each text, held out. Texts of under 8 rows hold none out."""
    ends = {text: len(rows) - len(rows) // HELD_OUT for text, rows in texts.items()}
    held_out = {text: rows[ends[text] :] for text, rows in texts.items() if ends[text] < len(rows)}
    return {text: rows[: ends[text]] for text, rows in texts.items()}, held_out


def _short(rows: Tensor) -> Tensor:
    return rows[:1] if rows.is_floating_point() else rows[:1, :_CHECKED]


class _Shown:
    """Tells how far a walk is: to a function, or by a line on a terminal."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress or (_line if sys.stderr.isatty() else None)
        self._start, self._done = time.monotonic(), 0

    def step(self, total: int) -> None:
        self._done += 1
        left = (time.monotonic() - self._start) / self._done * (total - self._done)
        if self._progress is not None:
            self._progress(self._done, total, left)


def _line(done: int, total: int, left: float) -> None:
    minutes, seconds = divmod(round(left), 60)
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rpruned {done} of {total} blocks, {minutes}:{seconds:02} left {end}")
    sys.stderr.flush()
