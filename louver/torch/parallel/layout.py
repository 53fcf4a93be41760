"""How a layer on several ranks takes its input and gives its output. Collectives, and their gradients, are DTensor's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_module

from louver.torch.placed import is_placed, local, strides


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a layer whose weight [rows, columns] lies on the ranks of a mesh of one axis.

    weight: `Shard(0)`, where each rank has rows and gives their outputs, `Shard(1)`, where each rank has columns and gives
        a part of each sum, or `Replicate()`.
    inputs: the placement of a plain x. None: x is a DTensor.
    outputs: the placement of the output. None: as the product gives it.
    plain: whether the output is this rank's part as a plain tensor.
    """

    mesh: DeviceMesh
    weight: Placement
    inputs: Placement | None = None
    outputs: Placement | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        if self.mesh.ndim != 1:
            raise ValueError(
                f"a sparse layer is divided along one axis of a mesh, got a mesh of {self.mesh.ndim} axes: take one, "
                'mesh["tp"]'
            )
        if not (self.weight.is_replicate() or self.weight.is_shard(0) or self.weight.is_shard(1)):
            raise ValueError(
                f"a sparse weight is placed by Shard(0), Shard(1) or Replicate(), got {self.weight}: redistribute it"
            )

    @classmethod
    def of(cls, values: Any) -> Layout:
        """The layout of a layer by the placement of its values: x and output are DTensors."""
        if len(values.placements) != 1:
            return cls(values.device_mesh, Replicate())
        return cls(values.device_mesh, values.placements[0])

    def __deepcopy__(self, memo: object) -> Layout:
        # It never changes, and a mesh cannot be copied.
        return self

    @property
    def sums(self) -> bool:
        """Whether each rank gives a part of each sum."""
        return self.weight.is_shard(1)

    def given(self, x: Any) -> Any:
        """x [..., K] as a DTensor, as the product takes it."""
        if not is_placed(x):
            if self.inputs is None:
                raise ValueError(
                    "a layer with parameters that are DTensors takes x as a DTensor, got a plain tensor: give the layer a "
                    "style of louver.torch.parallel by parallelize_module"
                )
            x = DTensor.from_local(x, self.mesh, [self.inputs], run_check=False)
        last = x.ndim - 1
        placed: Placement = Shard(last) if self.sums else Replicate()
        return x if x.placements == (placed,) else x.redistribute(placements=[placed])

    def enter(self, x: Any) -> Tensor:
        """The part of this rank of x [..., K], for the product."""
        taken = Shard(x.ndim - 1) if self.sums else Replicate()
        if (
            not is_placed(x)
            and _needs_no_gradient(x)
            and self.inputs is not None
            and _from_start(self.inputs, x) == taken
        ):
            return x
        x = self.given(x)
        (placed,) = x.placements
        # A rank with some of the rows has a part of the gradient of x.
        part = x.to_local(grad_placements=[Partial() if self.weight.is_shard(0) else placed])
        # Collectives that run give a subclass, which has no memory of its own.
        wait = getattr(part, "wait", None)
        return part if wait is None else wait()

    def leave(self, y: Tensor, rows: int) -> Any:
        """The output of a layer, of this rank's y. rows: of the whole weight."""
        made: Placement = Shard(y.ndim - 1) if self.weight.is_shard(0) else Partial() if self.sums else Replicate()
        if self.plain and _needs_no_gradient(y) and self.outputs is not None and _from_start(self.outputs, y) == made:
            return y
        shape = (*y.shape[:-1], rows)
        out = DTensor.from_local(y, self.mesh, [made], run_check=False, shape=torch.Size(shape), stride=strides(shape))
        return self.sent(out)

    def sent(self, out: Any) -> Any:
        """The output as the layer gives it, of one as the product gives it."""
        if self.outputs is not None:
            wanted = _from_start(self.outputs, out)
            if out.placements != (wanted,):
                out = out.redistribute(placements=[wanted])
        return out.to_local() if self.plain else out

    def attach_(self, layer: nn.Module) -> None:
        """Give a dense layer of PyTorch, whose parameters are DTensors, hooks that do the same."""
        distribute_module(
            layer,
            self.mesh,
            input_fn=lambda _, inputs, mesh: self.given(inputs[0]),  # pyright: ignore[reportUnknownLambdaType]
            output_fn=lambda _, outputs, mesh: self.sent(outputs),  # pyright: ignore[reportUnknownLambdaType]
        )

    def bias(self, b: Any) -> Tensor | None:
        """What this rank adds to its product: its rows of a bias, or, of a sum, all of it on the first rank alone."""
        if b is None or not self.sums:
            return local(b)
        whole = b.to_local(grad_placements=[Partial()]) if is_placed(b) else b
        if self.mesh.get_local_rank() == 0:
            return whole
        if not (torch.is_grad_enabled() and whole.requires_grad):
            return None
        # Nothing is added, and every rank takes part in the sum of the gradients.
        return whole.masked_fill(torch.ones_like(whole, dtype=torch.bool), 0)


def _from_start(placement: Placement, x: Tensor) -> Placement:
    """A placement of x, whose axis counts from the first one."""
    return Shard(x.ndim - 1) if placement.is_shard(-1) else placement


def _needs_no_gradient(x: Tensor) -> bool:
    """Whether a plain tensor can stay one: DTensors, which cost the host time, bring collectives to gradients."""
    return not (torch.is_grad_enabled() and x.requires_grad)
