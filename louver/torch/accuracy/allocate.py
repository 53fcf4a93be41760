"""`allocate`: choose a pattern for each layer, by what pruning it costs in predictions and gains in time."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.allocation import Allocation, LayerChoice, Option, choose
from louver.torch.accuracy.calibrate import Progress, split
from louver.torch.accuracy.layer_times import LayerTimes, with_kernels
from louver.torch.accuracy.prune import checked_texts, own_text
from louver.torch.accuracy.sensitivity import Group, sensitivities
from louver.torch.accuracy.text import device_of, evaluating
from louver.torch.layers import Layer, linear_layers
from louver.torch.swap import refusal

PATTERNS: Final = ("2:4", "1:2", "4:8@128", "2:8@V128")
"""Patterns that `allocate` tries by default. A weight's element type leaves some of them out."""

_BUDGET: Final = re.compile(r"(\d+(?:\.\d+)?)(%|x)", re.ASCII)


def allocate(
    model: nn.Module,
    budget: str,
    *,
    tokens: int | Sequence[int] = (16, 2048),
    calibration: Tensor | Mapping[str, Tensor] | None = None,
    held_out: Tensor | Mapping[str, Tensor] | None = None,
    patterns: Sequence[str | Pattern] = PATTERNS,
    skip: Collection[str] = (),
    blocks: str | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Allocation:
    """Choose a pattern, or none, for each linear layer of a model's blocks. `prune_(model, per_layer=…)` takes them.

    Each group of layers of one input (q, k and v; gate and up) is pruned alone by SparseGPT and reconstruction, and KL of
    the model's predictions from the dense ones is its sensitivity. The sum of these is least at the budget: one price of
    time, or of zeros, decides for all groups. The model stays as it is.

    budget: "35%" of the weights that may be pruned become zero; or "1.3x": dense over sparse time of the products with
        these weights, by the mean of sparse over dense time at the numbers of `tokens`. For the latter, patterns that are
        slower than dense are not chosen. Times are measured on a GPU; on a CPU they are predicted for an H200.
    calibration, held_out: texts as in `prune_`. Held-out rows measure the sensitivities, 8 of them.
    patterns: to try. Those that GPUs do not multiply in a weight's type are left out; f32 weights on a CPU count as bf16.
    skip: names of layers that stay dense, with `*` and `?` as in file names. blocks: as in `prune_`.
    device: where statistics are made; None: where the model is. progress: as in `prune_`.

    Stacks of experts stay dense: no product of theirs is sparse. Raises ValueError for bad arguments, for a budget that
    is out of reach, and for a model that `prune_` could not prune; ArithmeticError for NaN, with the layer's name.
    """
    goal = _Goal.parse(budget)
    counts = (tokens,) if isinstance(tokens, int) else tuple(tokens)
    if not counts or any(type(n) is not int or n < 1 for n in counts):
        raise ValueError(f"tokens are positive numbers, at least one, got {tokens!r}")
    wanted = [Pattern.parse(pattern) for pattern in patterns]
    if not wanted:
        raise ValueError("allocate chooses among patterns, got none")
    place = device_of(model) if device is None else torch.device(device)
    layers = {layer.name: layer for layer in linear_layers(model) if refusal(layer, skip) is None}
    times = LayerTimes(counts) if goal.speedup else None
    known = {name: found for name, layer in layers.items() if (found := with_kernels(layer, wanted))}
    tried = known
    if times is not None:
        tried = {name: [p for p in found if _relative(*times.of(layers[name], p)) < 1] for name, found in known.items()}
    if not any(tried.values()):
        what = "is faster than dense" if times else "is multiplied by GPUs in the weights' types"
        raise ValueError(
            f"no pattern {what}, got {', '.join(map(str, wanted))}: try other patterns or numbers of tokens"
        )
    with torch.inference_mode(False):
        texts = own_text(model, None) if calibration is None else checked_texts(model, calibration, "calibration")
        judged = None if held_out is None else checked_texts(model, held_out, "held_out")
        if judged is None:
            texts, judged = split(texts)
        with evaluating(model):
            groups = sensitivities(
                model, tried, texts, judged or texts, place, skip=tuple(skip), blocks=blocks, progress=progress
            )
    us: dict[str, dict[str, Mapping[int, float]]] = {}
    for name in (name for group in groups if times for name in group.layers):
        both = {str(pattern): times.of(layers[name], pattern) for pattern in known[name]} if times else {}
        us[name] = {"dense": next(iter(both.values()))[0], **{pattern: sparse for pattern, (_, sparse) in both.items()}}
    return _allocation(goal, groups, layers, us, counts)


@dataclass(frozen=True, slots=True)
class _Goal:
    """A budget. Either zeros, a share, or speedup is set."""

    text: str
    zeros: float = 0.0
    speedup: float = 0.0

    @classmethod
    def parse(cls, text: Any) -> _Goal:
        match = _BUDGET.fullmatch(text) if isinstance(text, str) else None
        number = float(match[1]) if match else 0.0
        if match is None or not (0 < number < 100 if match[2] == "%" else number > 1):
            raise ValueError(f'a budget is zeros, as in "35%", or a speed over 1, as in "1.3x", got {text!r}')
        return cls(text, zeros=number / 100) if match[2] == "%" else cls(text, speedup=number)


def _relative(dense: Mapping[int, float], sparse: Mapping[int, float]) -> float:
    return fmean(sparse[n] / dense[n] for n in dense)


def _allocation(
    goal: _Goal,
    groups: Sequence[Group],
    layers: Mapping[str, Layer],
    us: Mapping[str, Mapping[str, Mapping[int, float]]],
    tokens: tuple[int, ...],
) -> Allocation:
    """us: µs by layer, pattern and tokens; empty for a budget of zeros."""
    members = {name: layers[name] for group in groups for name in group.layers}
    size = sum(layer.weight.numel() for layer in members.values())
    # Dense time of all products at each number of tokens: costs are shares of it, the mean over the numbers.
    whole = {n: sum(each["dense"][n] for each in us.values()) for n in tokens}

    def cost(group: Group, pattern: str | None) -> float:
        if not us:
            if pattern is None:
                return 0.0
            return -sum(layer.weight.numel() * group.zeros[name][pattern] for name, layer in _of(group, layers)) / size
        return sum(fmean(us[name][pattern or "dense"][n] / whole[n] for n in tokens) for name in group.layers)

    options = [
        [Option(None, 0.0, cost(group, None)), *(Option(p, kl, cost(group, p)) for p, kl in group.kl.items())]
        for group in groups
    ]
    limit = 1 / goal.speedup if us else -goal.zeros
    try:
        chosen = choose(options, limit)
    except ValueError:
        most = sum(min(option.cost for option in each) for each in options)
        reach = f"{1 / most:.2f}x" if us else f"{-most:.1%}"
        raise ValueError(
            f"a budget is within reach of the patterns, at most {reach}, got {goal.text}: ask for less, or give other patterns"
        ) from None
    rows = [
        LayerChoice(
            name,
            (layer.weight.shape[0], layer.weight.shape[1]),
            number,
            option.pattern,
            group.kl,
            group.zeros[name],
            {p: fmean(t.values()) for p, t in us.get(name, {}).items()},
        )
        for number, (group, option) in enumerate(zip(groups, chosen, strict=True))
        for name, layer in _of(group, layers)
    ]
    zeros = sum(members[row.name].weight.numel() * row.zeros[row.pattern] for row in rows if row.pattern) / size
    speedup = 1 / sum(option.cost for option in chosen) if us else None
    measured = bool(us) and any(layer.weight.is_cuda for layer in members.values())
    return Allocation(goal.text, tuple(rows), sum(o.kl for o in chosen), zeros, speedup, measured, tokens)


def _of(group: Group, layers: Mapping[str, Layer]) -> list[tuple[str, Layer]]:
    return [(name, layers[name]) for name in group.layers]
