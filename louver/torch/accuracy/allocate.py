"""`allocate`: choose a pattern for each layer, by what pruning it costs in predictions and gains in time."""

# pyright: reportUnknownVariableType=false

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

import torch
from torch import Tensor, nn

from louver.advice.product import ELSEWHERE
from louver.formats.pattern import Pattern, has_kernels
from louver.torch.accuracy.allocation import Allocation, LayerChoice, Option, Sensitivity, choose, sensitivities
from louver.torch.accuracy.calibrate import Progress, split
from louver.torch.accuracy.prune import checked_texts, own_text
from louver.torch.accuracy.text import device_of, evaluating
from louver.torch.gain import element_of, measure, predict
from louver.torch.layers import Layer, linear_layers
from louver.torch.linear import SparseLinear
from louver.torch.ready import checked_tokens
from louver.torch.swap import refusal


def with_kernels(layer: Layer, patterns: Sequence[Pattern]) -> list[Pattern]:
    """The patterns that the layer's weight can keep and that GPUs multiply in its element type."""
    columns = layer.weight.shape[1]
    return [p for p in patterns if columns >= p.m and has_kernels("products", str(p), element_of(layer.weight))]


def speedup(
    model: nn.Module, per_layer: Mapping[str, str | Pattern | None], tokens: Sequence[int] = (16, 2048)
) -> float:
    """Dense over sparse time of the products of the layers that `per_layer` names, as `allocate` counts it.

    per_layer: patterns by layer, None for dense. Layers whose products no GPU has with a pattern do not count. Raises
    ValueError for another name.
    """
    layers = {layer.name: layer for layer in linear_layers(model) if layer.refused is None}
    chosen = {name: None if p is None else Pattern.parse(p) for name, p in per_layer.items()}
    unknown = [name for name, pattern in chosen.items() if pattern is not None and name not in layers]
    if unknown:
        raise ValueError(f"patterns are of linear layers that may be pruned, got {unknown[0]!r}")
    tried = list(dict.fromkeys(pattern for pattern in chosen.values() if pattern is not None))
    times, dense, sparse = LayerTimes(tokens), dict.fromkeys(tokens, 0.0), dict.fromkeys(tokens, 0.0)
    for name, pattern in chosen.items():
        known = with_kernels(layers[name], [pattern] if pattern else tried) if name in layers else []
        for n in tokens if known else ():
            both = times.of(layers[name], known[0])
            dense[n] += both[0][n]
            sparse[n] += both[1 if pattern else 0][n]
    return 1 / fmean(sparse[n] / dense[n] for n in tokens)


class LayerTimes:
    """Times of layers. Each shape, element type and pattern is timed once."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)
        self._known: dict[tuple[Any, ...], tuple[Mapping[int, float], Mapping[int, float]]] = {}

    def of(self, layer: Layer, pattern: Pattern) -> tuple[Mapping[int, float], Mapping[int, float]]:
        """µs of the dense product and of the sparse one, by tokens."""
        weight = layer.weight
        key = (weight.shape, weight.dtype, weight.device, layer.module.bias is not None, type(layer.module), pattern)
        if key not in self._known:
            self._known[key] = self._timed(layer, pattern)
        return self._known[key]

    def _timed(self, layer: Layer, pattern: Pattern) -> tuple[Mapping[int, float], Mapping[int, float]]:
        weight = layer.weight
        if weight.is_cuda:
            gain = measure(layer.module, SparseLinear.of(layer.module, pattern, prune=True), self._tokens)
            return gain.dense_us, gain.sparse_us
        found = predict(weight, str(pattern), self._tokens, ELSEWHERE)
        if found is None:
            raise ValueError(
                f"times of {element_of(weight)} are predicted for no GPU, got {layer.name}: move the model to a GPU"
            )
        return found.dense_us, found.sparse_us


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
    progress: Progress | None = None,
) -> Allocation:
    """Choose a pattern, or none, for each linear layer of a model's blocks. `prune_(model, per_layer=…)` takes them.

    Each layer is pruned alone by SparseGPT and reconstruction, and KL of the model's predictions from the dense ones is
    its sensitivity. The sum of these is least at the budget: one price of time, or of zeros, decides for all layers.
    The model stays as it is, and runs where it is.

    budget: "35%" of the weights that may be pruned become zero; or "1.3x": dense over sparse time of the products with
        these weights, by the mean of sparse over dense time at the numbers of `tokens`. For the latter, patterns that are
        slower than dense are not chosen. Times are measured on a GPU; on a CPU they are predicted for an H200.
    calibration, held_out: texts as in `prune_`. Held-out rows measure the sensitivities, 8 of them.
    patterns: to try. Those that GPUs do not multiply in a weight's type are left out; f32 weights on a CPU count as bf16.
    skip: names of layers that stay dense, with `*` and `?` as in file names. blocks: as in `prune_`.

    Stacks of experts stay dense: no product of theirs is sparse. Raises ValueError for bad arguments, for a budget that
    is out of reach, and for a model that `prune_` could not prune; ArithmeticError for NaN, with the layer's name.
    """
    goal = _Goal.parse(budget)
    counts = checked_tokens(tokens)
    wanted = [Pattern.parse(pattern) for pattern in patterns]
    if not wanted:
        raise ValueError("allocate chooses among patterns, got none")
    device_of(model)
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
            found, others = sensitivities(model, tried, texts, judged or texts, blocks=blocks, progress=progress)
    us: dict[str, dict[str, Mapping[int, float]]] = {}
    if times is not None:
        for each in found:
            both = {pattern: times.of(layers[each.name], pattern) for pattern in known[each.name]}
            sparse = {str(pattern): pair[1] for pattern, pair in both.items()}
            us[each.name] = {"dense": next(iter(both.values()))[0], **sparse}
    chosen = _allocation(goal, found, layers, us, counts)
    dense = [LayerChoice(name, tuple(_weight(model, name).shape), None, {}, {}, {}) for name in others]
    return replace(chosen, layers=(*chosen.layers, *dense))


def _weight(model: nn.Module, name: str) -> Tensor:
    """The weight of a layer, or a stack of experts, which is a parameter."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return parameters[name if name in parameters else f"{name}.weight"]


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
    found: Sequence[Sensitivity],
    layers: Mapping[str, Layer],
    us: Mapping[str, Mapping[str, Mapping[int, float]]],
    tokens: tuple[int, ...],
) -> Allocation:
    """us: µs by layer, pattern and tokens; empty for a budget of zeros."""
    sizes = {each.name: layers[each.name].weight.numel() for each in found}
    size = sum(sizes.values())
    # Dense time of all products at each number of tokens: costs are shares of it, the mean over the numbers.
    whole = {n: sum(each["dense"][n] for each in us.values()) for n in tokens}

    def cost(layer: Sensitivity, pattern: str | None) -> float:
        if us:
            return fmean(us[layer.name][pattern or "dense"][n] / whole[n] for n in tokens)
        return -sizes[layer.name] * layer.zeros[pattern] / size if pattern else 0.0

    options = [
        [Option(None, 0.0, cost(layer, None)), *(Option(p, kl, cost(layer, p)) for p, kl in layer.kl.items())]
        for layer in found
    ]
    most = sum(min(option.cost for option in each) for each in options)
    limit = 1 / goal.speedup if us else -goal.zeros
    if most > limit:
        reach = f"{1 / most:.2f}x" if us else f"{-most:.1%}"
        raise ValueError(
            f"a budget is within reach of the patterns, at most {reach}, got {goal.text}: ask for less, or give other patterns"
        )
    chosen = choose(options, limit)
    rows = [
        LayerChoice(
            layer.name,
            tuple(layers[layer.name].weight.shape),
            option.pattern,
            layer.kl,
            layer.zeros,
            {p: fmean(t.values()) for p, t in us.get(layer.name, {}).items()},
        )
        for layer, option in zip(found, chosen, strict=True)
    ]
    return Allocation(
        goal.text,
        tuple(rows),
        kl=sum(option.kl for option in chosen),
        zeros=sum(sizes[row.name] * row.zeros[row.pattern] for row in rows if row.pattern) / size,
        speedup=1 / sum(option.cost for option in chosen) if us else None,
        measured=bool(us) and any(layers[name].weight.is_cuda for name in sizes),
        tokens=tokens,
    )
