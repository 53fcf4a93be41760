"""Compiles and uploads what a model's sparse layers use, before their calls are captured or timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from louver.frontend.epilogue import Epilogue
from louver.library import prepare as ahead
from louver.torch.blocks import joints
from louver.torch.core import core_of
from louver.torch.layers import sparse_layers
from louver.torch.linear import SparseLinear, SparseWeight
from louver.torch.stacks import SparseStack
from louver.torch.tokens import quantized_tokens


def checked_tokens(tokens: int | Sequence[int]) -> tuple[int, ...]:
    """Raises ValueError unless these are numbers of tokens."""
    counts = (tokens,) if isinstance(tokens, int) else tuple(tokens)
    if not counts or any(type(n) is not int or n < 1 for n in counts):
        raise ValueError(f"tokens are positive numbers, at least one, got {tokens!r}")
    return counts


def prepare(model: nn.Module, tokens: int | Sequence[int]) -> int:
    """Compile, load and upload everything that calls of a model's sparse layers with these numbers of tokens use, so
    that they can be captured in a CUDA graph. Returns the number of layers.

    Raises ValueError for a model without sparse layers, for layers that are not on a GPU, and for bad numbers.
    """
    counts = checked_tokens(tokens)
    layers = sparse_layers(model)
    if not layers:
        raise ValueError(f"a model to prepare has layers of louver.torch.SparseLinear, got {type(model).__name__}")
    elsewhere = next((layer for layer in layers if not layer.module.weight.values.is_cuda), None)
    if elsewhere is not None:
        raise ValueError(
            f"layers to prepare are on a GPU, got {elsewhere.name} on {elsewhere.module.weight.device}: move the model"
        )
    for layer in layers:
        if isinstance(layer.module, SparseStack):
            _prepare_stack(layer.module, counts)
        elif type(layer.module) is SparseLinear:
            prepare_weight(layer.module.weight, counts, bias=layer.module.bias is not None)
    for joint, activation, bias in joints(model):
        prepare_weight(joint, counts, bias=bias, activation=activation, gated=joint.by_turns)
    return len(layers)


def _prepare_stack(stack: SparseStack, counts: Sequence[int]) -> None:
    """The batches, which calls under capture use. An expert alone has any number of tokens, and compiles when called."""
    scaled = stack.scale is not None
    with torch.cuda.device(stack.device):
        if scaled:
            quantized_tokens(torch.ones(2, stack.shape[-1], dtype=stack.dense_dtype, device=stack.device), stack.dtype)
        values, indices, experts = stack.tensors()[0]
        s = core_of(values, indices, stack.pattern, stack.shape[-1], entries=experts)
        for n in counts:
            ahead.prepare(ahead.preparation(s, n, out_dtype=torch.float32 if scaled else None))


def prepare_weight(
    weight: SparseWeight, counts: Sequence[int], *, bias: bool, activation: Any = None, gated: bool = False
) -> None:
    """The same for products with one weight on a GPU. activation, gated: as of the operator `gated`."""
    with torch.cuda.device(weight.device):
        if weight.scale is not None:
            # The kernel that quantizes tokens is the same for every number of them.
            quantized_tokens(
                torch.ones(2, weight.columns, dtype=weight.dense_dtype, device=weight.device), weight.dtype
            )
        for made in preparations(weight, counts, bias=bias, activation=activation, gated=gated):
            ahead.prepare(made)


def preparations(
    weight: SparseWeight, counts: Sequence[int], *, bias: bool, activation: Any = None, gated: bool = False
) -> Iterator[ahead.Preparation]:
    """The products of a weight with each of these numbers of tokens. bias, activation, gated: of the calls."""
    scaled = weight.scale is not None
    epilogue = Epilogue(
        activation=activation, scale="row" if scaled else None, dense_scale="column" if scaled else None
    )
    values, indices, _ = weight.tensors()[0]
    s = core_of(values, indices, weight.pattern, weight.columns, gated=gated)
    for n in counts:
        yield ahead.preparation(s, n, bias=bias, epilogue=epilogue, out_dtype=weight.dense_dtype)
