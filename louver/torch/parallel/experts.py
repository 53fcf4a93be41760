"""Experts on several ranks: each has some of the experts, multiplies the tokens of these, and the outputs are summed."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ParallelStyle

from louver.torch.experts import SparseExperts
from louver.torch.parallel.sharding import divided
from louver.torch.placed import is_placed
from louver.torch.stacks import SparseStack


@dataclass(frozen=True, slots=True)
class Placing:
    """The experts of this rank, from `first`, `count` of them. Tokens are the same on all ranks of a mesh of one axis."""

    mesh: DeviceMesh
    first: int
    count: int

    def __deepcopy__(self, memo: object) -> Placing:
        # It never changes, and a mesh cannot be copied.
        return self

    def enter(self, x: Tensor, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What this rank multiplies: other experts have the number past the last one, and weights of 0."""
        x, weights = (
            DTensor.from_local(each, self.mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
            for each in (x, weights)
        )
        mine = (index >= self.first) & (index < self.first + self.count)
        return x, torch.where(mine, index - self.first, self.count), torch.where(mine, weights, 0)

    def leave(self, y: Tensor) -> Tensor:
        """The sum over the ranks."""
        parts = DTensor.from_local(y, self.mesh, [Partial()], run_check=False)
        return parts.redistribute(placements=[Replicate()]).to_local()


class ExpertParallel(ParallelStyle):
    """A style of `parallelize_module` for a layer of Transformers' experts with sparse weights: each rank has some of the
    experts. Every rank gets all tokens, and all outputs.

    Raises ValueError for another module, and for fewer experts than ranks, before anything is changed.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        layer: Any = module
        if not isinstance(module, SparseExperts):
            raise ValueError(
                f"ExpertParallel divides a layer of experts with sparse weights, got {type(module).__name__}: call compress_ "
                "first, or name the layer of experts in the plan"
            )
        if device_mesh.ndim != 1:
            raise ValueError(f"experts are divided along one axis of a mesh, got a mesh of {device_mesh.ndim} axes")
        if any(is_placed(each) for each in layer.parameters()):
            raise ValueError("experts are divided once, got a layer whose parameters are DTensors")
        total, ranks, rank = layer.num_experts, device_mesh.size(), device_mesh.get_local_rank()
        part = -(-total // ranks)
        if part * (ranks - 1) >= total:
            raise ValueError(f"each rank has an expert, got {total} experts for {ranks} ranks: take fewer ranks")
        first = rank * part
        for owner in (module, *(each for each in module.children() if isinstance(each, SparseStack))):
            if isinstance(owner, SparseStack):
                owner.refresh_()
            for name, parameter in list(owner.named_parameters(recurse=False)):
                if parameter.shape[:1] == (total,):
                    setattr(owner, name, divided(parameter, device_mesh, Shard(0), self.src_data_rank))
        layer.placing = Placing(device_mesh, first, min(part, total - first))
        layer.num_experts = layer.placing.count
        return module
