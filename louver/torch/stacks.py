"""The weights of all experts of a layer as one sparse weight, with an axis of experts.

Experts of Transformers, whose weights are stacks [experts, out, in], or [experts, in, out], as sparse ones.

A layer of experts is a module that Transformers gives several implementations of `forward`, with the facts that they
read: gates, biases, the order of axes. The module gets a subclass of its class, whose `forward` is another such
implementation. It sorts the tokens by expert, and multiplies each by the weights of its expert.
"""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false
# pyright: reportPrivateUsage=false

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.grouped import GROUPED, by_turns, captured, in_order
from louver.torch.linear import SparseWeight, arrays_of
from louver.torch.operators import OPS
from louver.torch.placed import beside, local, part_of


class SparseStack(SparseWeight):
    """The weights of all experts [experts, out, in], as two parameters with an axis of experts. Transformers divides
    them in files as it divides dense stacks, so each expert's part has the form of Louver's files.

    values: [experts, out, kept]. indices: [experts, windows, bytes]. scale: f32 [experts, out].
    """

    def __init__(self, experts: int, rows: int, columns: int, pattern: str | Pattern = "2:4", **options: Any) -> None:
        super().__init__(experts * rows, columns, pattern, **options)
        self.shape = torch.Size((experts, rows, columns))
        for name, array in list(self.named_parameters()):
            stacked = array.detach().unflatten(0, (experts, -1))
            setattr(self, name, nn.Parameter(stacked, array.requires_grad))

    @property
    def weight(self) -> SparseStack:
        """Itself: a stack is the layer of its weight."""
        return self

    def dense(self) -> Tensor:
        """The dense weights [experts, out, in], differentiable. Of quantized weights in the type that they had before."""
        return self.expanded(local(self.values), local(self.indices))

    def expanded(self, values: Tensor, indices: Tensor) -> Tensor:
        """The dense weights of values and indices whose rows are in order."""
        flat = OPS.dense(values.flatten(0, 1), indices.flatten(0, 1), self.shape[-1], self.pattern)
        dense = beside(self.values, flat.reshape(len(values), *self.shape[1:]), self.shape)
        return dense if self.scale is None else (dense.float() * self.scale[..., None]).to(self.dense_dtype)

    def tensors(self) -> list[tuple[Tensor, Tensor, int]]:
        values, indices = part_of(self.values), part_of(self.indices)
        whole = values.flatten(0, 1), indices.flatten(0, 1), len(values)
        return [whole, *((*each, 0) for each in zip(values.unbind(0), indices.unbind(0), strict=True))]

    def multiply(self, x: Tensor, ends: Tensor, most: int) -> Tensor:
        """x [rows, in], sorted by expert -> [rows, out], see `louver.torch.grouped`."""
        values, indices, scale = self.local_arrays()
        return GROUPED(self.operand(x), values, indices, ends, most, scale, self.pattern)

    def local_arrays(self) -> tuple[Any, Any, Any]:
        """Values, indices and scale of the experts of this rank."""
        arrays = arrays_of(self)
        return local(arrays["values"]), local(arrays["indices"]), local(arrays["scale"])

    def operand(self, x: Tensor) -> Tensor:
        """x in the type of the weights, as Transformers' products take it, also under autocast."""
        return x.to(self.dtype) if self.dtype.itemsize > 1 else x

    def trains(self, x: Tensor) -> bool:
        """Whether a product has gradients."""
        return torch.is_grad_enabled() and (x.requires_grad or self.values.requires_grad)


class GatedStack(SparseStack):
    """A stack whose values and indices have the rows of gate and up projection in turns of 8. scale: in order."""

    activation: str | None

    def dense(self) -> Tensor:
        return self.expanded(in_order(local(self.values)), in_order(local(self.indices)))

    def rounded(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        values, scale = super().rounded(dtype)
        return values, in_order(scale)

    def multiply(self, x: Tensor, ends: Tensor, most: int) -> Tensor:
        values, indices, scale = self.local_arrays()
        scale = None if scale is None else by_turns(scale)
        return in_order(GROUPED(self.operand(x), values, indices, ends, most, scale, self.pattern))

    def gated(self, x: Tensor, ends: Tensor, most: int) -> Tensor:
        """act(gate) · up of x [rows, K], sorted by expert -> [rows, F]. No gradients."""
        values, indices, scale = self.local_arrays()
        weight = values, indices, ends, most, scale, self.pattern
        return GROUPED(self.operand(x), *weight, True, self.activation)

    def copy_(self, other: SparseWeight) -> GatedStack:
        self.check_like(other)
        with torch.no_grad():
            for name, mine in self.named_parameters():
                given = getattr(other, name)
                turned = name == "scale" or isinstance(other, GatedStack)
                mine.copy_(given if turned else by_turns(given))
        self.refresh_()
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("values", "indices"):
            mine = destination[prefix + name]
            destination[prefix + name] = beside(mine, in_order(part_of(mine)), mine.shape)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        turned = {
            prefix + name: beside(given, by_turns(part_of(given)), given.shape)
            for name in ("values", "indices")
            if (given := state_dict.get(prefix + name)) is not None and given.shape == getattr(self, name).shape
        }
        super()._load_from_state_dict({**state_dict, **turned}, prefix, *arguments)


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
