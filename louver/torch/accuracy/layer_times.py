"""µs of a layer's product, dense and with each pattern: measured on a GPU, else predicted for an H200."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from torch import nn

from louver.advice.product import ELSEWHERE
from louver.formats.coverage import has_kernels
from louver.formats.pattern import Pattern
from louver.torch.gain import element_of, measure, predict
from louver.torch.layers import Layer, linear_layers
from louver.torch.linear import SparseLinear


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
