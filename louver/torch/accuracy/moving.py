"""Masks that move while values train: which may, where they start, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.formats.select import PATTERN as TRANSPOSABLE
from louver.torch.accuracy.masks import keep, keeps, kept_pattern
from louver.torch.accuracy.scores import logits_of
from louver.torch.layers import is_turned, linear_layers


@dataclass(frozen=True, slots=True)
class Moving:
    """A weight whose mask moves. pattern: that it keeps; norms: f32 [K], of the input's features.

    turned: whether the parameter is [K, R]. transposable: whether the mask keeps 2:4 along both axes, and goes on to.
    """

    pattern: Pattern
    norms: Tensor
    turned: bool
    transposable: bool = False

    def mask(self, weight: Tensor) -> Tensor:
        """The mask of f32 values: by magnitude times the norm of the input (Wanda, arXiv 2306.11695)."""
        rows = weight.t() if self.turned else weight
        found = keep(rows.abs() * self.norms, self.pattern, transposable=self.transposable)
        return found.t() if self.turned else found


def moving_weights(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    patterns: Sequence[str | Pattern] | Mapping[str, Any],
    norms: Mapping[str, Tensor],
) -> dict[str, Moving]:
    """The masked weights of linear layers whose pattern is known, by the parameter's name.

    patterns: to look for, or by layer. norms: of inputs, by layer.

    Raises ValueError if there is none, and for a layer that does not keep the pattern that is given for it.
    """
    found: dict[str, Moving] = {}
    for layer in linear_layers(model):
        name = f"{layer.name}.weight"
        if name not in masks or layer.name not in norms:
            continue
        pattern = kept_pattern(layer, patterns)
        if pattern is not None:
            both = str(pattern) == str(TRANSPOSABLE) and keeps(layer.weight.detach(), pattern, axis=-2)
            found[name] = Moving(pattern, norms[layer.name], is_turned(layer.module), both)
        elif isinstance(patterns, Mapping) and patterns.get(layer.name) is not None:
            raise ValueError(
                f"a mask moves within the pattern that its weight keeps, got {layer.name}, which breaks {patterns[layer.name]}"
            )
    if not found:
        raise ValueError(
            f"masks move in weights that keep a known pattern, got none: give patterns={{layer: pattern}}, or what allocate chose; looked for {patterns}"
        )
    return found


def start(
    masters: Mapping[str, Tensor],
    working: nn.Module,
    dense: nn.Module,
    masks: Mapping[str, Tensor],
    patterns: Any,
    text: Tensor,
) -> tuple[dict[str, Tensor], dict[str, Moving]]:
    """The f32 values that training starts from if masks move, and these masks: pruned places have the teacher's values.

    masters: f32 values of `working`; masks: of some of them, by name. patterns: as in `moving_weights`. text: tokens [rows, length].

    Raises ValueError if no mask may move, or if the teacher has other weights.
    """
    found = dict(masters)
    theirs = dict(dense.named_parameters())
    names = [layer.name for layer in linear_layers(working) if f"{layer.name}.weight" in masks]
    place = next(dense.parameters()).device
    norms = input_norms(dense, names, lambda: logits_of(dense, text[: min(4, len(text))].to(place)))
    moves = moving_weights(working, masks, patterns, norms)
    for name in moves:
        value = theirs.get(name)
        if value is None or value.shape != masters[name].shape:
            got = "none" if value is None else str(list(value.shape))
            raise ValueError(
                f"masks move between dense values, which the teacher has by the same names, got {got} for {name} {list(masters[name].shape)}"
            )
        found[name] = torch.where(masks[name], masters[name], value.detach().float())
    return found, moves


def input_norms(model: nn.Module, layers: Sequence[str], run: Callable[[], Any]) -> dict[str, Tensor]:
    """The root of the summed squares of each input feature of some layers, f32, over the tokens of a run."""
    sums: dict[str, Tensor] = {}

    def hook(name: str) -> Any:
        def add(_: nn.Module, args: tuple[Any, ...]) -> None:
            squares = args[0].detach().float().flatten(0, -2).square().sum(0)
            sums[name] = sums[name] + squares if name in sums else squares

        return add

    handles = [model.get_submodule(name).register_forward_pre_hook(hook(name)) for name in layers]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()
    return {name: total.sqrt() for name, total in sums.items()}
