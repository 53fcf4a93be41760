"""Pruned layers that train sparse while a model is distilled: those whose steps are faster so, measured on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.accuracy.loop import Saved
from louver.torch.accuracy.masks import kept_pattern
from louver.torch.gain import measure_training
from louver.torch.layers import Layer, is_turned, linear_layers
from louver.torch.linear import SparseLinear
from louver.torch.operators import OPS


class Swapped:
    """The layers of a working copy that train sparse, by the names of their dense weights."""

    def __init__(self) -> None:
        self._layers: dict[str, Layer] = {}

    def __len__(self) -> int:
        return len(self._layers)

    def swap_(
        self,
        working: nn.Module,
        masks: dict[str, Tensor],
        patterns: Sequence[str | Pattern] | Mapping[str, Any],
        tokens: int,
        saved: Saved | None,
    ) -> None:
        """Swap layers, and change their masks to those of their values.

        masks: of dense weights, by the parameter's name. patterns: to look for, or by layer. tokens: of a step. saved: the
        choice of a run that goes on.
        """
        known = None if saved is None else saved.load()
        times: dict[tuple[Any, ...], bool] = {}
        for layer in linear_layers(working):
            name = f"{layer.name}.weight"
            pattern = kept_pattern(layer, patterns) if name in masks and layer.refused is None else None
            if pattern is None:
                continue
            sparse = layer.sparse(pattern)
            if known is None:
                kind = (layer.weight.shape, str(pattern), sparse.bias is None, sparse.weight.is_transposable)
                if kind not in times:
                    times[kind] = is_faster(layer.module, sparse, tokens)
                if not times[kind]:
                    continue
            elif name not in known["names"]:
                continue
            layer.put(sparse)
            self._layers[name] = layer
            del masks[name]
            kept = sparse.weight.values.detach() != 0
            # Zeros stay, also those that the pattern keeps.
            if not bool(kept.all()):
                masks[f"{name}.values"] = kept
        if known is None and saved is not None:
            saved.save({"names": list(self._layers)})

    def dense(self, values: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Trained values by the names of the parameters before the swap."""
        found: dict[str, Tensor] = {}
        for name, value in values:
            layer = self._layers.get(name.removesuffix(".values"))
            if layer is not None:
                weight = layer.placed.weight
                value = OPS.dense(value, weight.indices, weight.shape[1], weight.pattern)
                name, value = name.removesuffix(".values"), value.t() if is_turned(layer.module) else value
            found[name] = value
        return found


def is_faster(dense: nn.Module, sparse: SparseLinear, tokens: int) -> bool:
    """Whether forward and backward of a layer take less time sparse. On a CPU they do not."""
    return sparse.weight.device.type == "cuda" and measure_training(dense, sparse, tokens).relative < 1
