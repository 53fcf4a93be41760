"""The weights of all experts of a layer as one sparse weight, with an axis of experts."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from louver.formats.pattern import Pattern
from louver.torch.grouped import GROUPED, by_turns, in_order
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
