"""Experts of Transformers, whose weights are stacks [experts, out, in], or [experts, in, out], as sparse ones.

A layer of experts is a module that Transformers gives several implementations of `forward`, with the facts that they
read: gates, biases, the order of axes. The module gets a subclass of its class, whose `forward` is another such
implementation. It sorts the tokens by expert, and multiplies each by the weights of its expert.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from louver.torch.grouped import captured
from louver.torch.placed import local
from louver.torch.stacks import GatedStack, SparseStack


class SparseExperts(nn.Module):
    """What the class of a layer of experts becomes: `original` is the class."""

    original: type[nn.Module]
    placing: Any = None
    """Of experts on several ranks: a `louver.torch.parallel.styles.Placing`."""

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """hidden_states: [tokens, in]. top_k_index, top_k_weights: [tokens, chosen]. Returns [tokens, in]."""
        if self.placing is None:
            return self.own_experts(hidden_states, top_k_index, top_k_weights)
        given = self.placing.enter(hidden_states, top_k_index, top_k_weights)
        return self.placing.leave(self.own_experts(*given))

    def own_experts(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """The same by the experts of this rank. A number past the last of them is of another rank's."""
        layer: Any = self
        tokens, chosen = top_k_index.shape
        # A stable order, so that results are the same from run to run.
        experts, order = torch.sort(top_k_index.reshape(-1), stable=True)
        ends = torch.searchsorted(experts, torch.arange(layer.num_experts, device=experts.device), right=True)
        if not (torch.compiler.is_compiling() or captured(ends)):
            # The products of both stacks read the ends: one wait, before the first one.
            ends = ends.cpu()
        x = hidden_states[order // chosen]
        first: Any = getattr(layer, "gate_up_proj" if layer.has_gate else "up_proj")
        if isinstance(first, GatedStack) and not first.trains(x):
            x = first.gated(x, ends, tokens)
        else:
            x = _product(layer, "gate_up_proj" if layer.has_gate else "up_proj", x, experts, ends, tokens)
            x = layer._apply_gate(x) if layer.has_gate else layer.act_fn(x)
        x = _product(layer, "down_proj", x, experts, ends, tokens)
        if getattr(layer, "has_post_expert_norm", False):
            x = layer.post_expert_norm(x)
        x = x * top_k_weights.reshape(-1)[order, None]
        y = torch.empty_like(x).index_copy(0, order, x)
        return y.reshape(tokens, chosen, -1).sum(1).to(hidden_states.dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class has no name that pickle could find.
        return _blank, (self.original,), self.__dict__


def _product(layer: Any, name: str, x: Tensor, experts: Tensor, ends: Tensor, most: int) -> Tensor:
    """The product of one stack, sparse or dense."""
    weight = getattr(layer, name)
    if isinstance(weight, SparseStack):
        y = weight.multiply(x, ends, most)
    else:
        w = local(weight)
        y = dense_product(x, w if layer.is_transposed else w.mT, ends)
    if layer.has_bias:
        y = y + local(getattr(layer, f"{name}_bias"))[experts.clamp(max=layer.num_experts - 1)]
    return y


def dense_product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """x [rows, in], sorted by expert, times dense weights [experts, in, out], as Transformers does it."""
    from transformers.integrations.moe import _grouped_mm

    return _grouped_mm(x, weight, ends.to(x.device, torch.int32))


def chosen(module: Any) -> int:
    """How many experts multiply a token, by the configuration."""
    return getattr(module.config, "num_experts_per_tok", None) or 1


def become_sparse_(module: nn.Module) -> None:
    """Let a layer of experts run its sparse stacks."""
    if not isinstance(module, SparseExperts):
        module.__class__ = _class(type(module))


def become_dense_(module: Any) -> None:
    """Undo `become_sparse_` of a layer that has no sparse stack any more."""
    if not any(isinstance(each, SparseStack) for each in module.children()):
        module.__class__ = module.original


@functools.cache
def _class(original: type[nn.Module]) -> type[SparseExperts]:
    # Transformers looks for classes by their names.
    names = {"original": original, "__module__": __name__, "__doc__": original.__doc__}
    return type(original.__name__, (SparseExperts, original), names)


def _blank(original: type[nn.Module]) -> SparseExperts:
    made = _class(original)
    return made.__new__(made)
