"""Compiles and uploads what a model's sparse layers use, before their calls are captured or timed."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from louver.library import prepare as ahead
from louver.torch.core import core_of
from louver.torch.layers import sparse_layers


def prepare(model: nn.Module, tokens: int | Sequence[int]) -> int:
    """Compile, load and upload everything that calls of a model's sparse layers with these numbers of tokens use, so
    that they can be captured in a CUDA graph. Returns the number of layers.

    Raises ValueError for a model without sparse layers, for layers that are not on a GPU, and for bad numbers.
    """
    counts = (tokens,) if isinstance(tokens, int) else tuple(tokens)
    if not counts or any(type(n) is not int or n < 1 for n in counts):
        raise ValueError(f"tokens are positive numbers, at least one, got {tokens!r}")
    layers = sparse_layers(model)
    if not layers:
        raise ValueError(f"a model to prepare has layers of louver.torch.SparseLinear, got {type(model).__name__}")
    elsewhere = next((layer for layer in layers if not layer.module.weight.values.is_cuda), None)
    if elsewhere is not None:
        raise ValueError(
            f"layers to prepare are on a GPU, got {elsewhere.name} on {elsewhere.module.weight.device}: move the model"
        )
    for layer in layers:
        module = layer.module
        weight = module.weight
        with torch.cuda.device(weight.device):
            s = core_of(weight.values, weight.indices, weight.pattern, module.in_features)
            for n in counts:
                ahead.prepare(ahead.preparation(s, n, bias=module.bias is not None))
    return len(layers)
