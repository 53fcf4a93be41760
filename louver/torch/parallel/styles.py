"""Styles of `parallelize_module` for sparse layers, joined layers and experts: those of PyTorch, which also know them.

A sparse layer gets no hooks, but a `Layout`, which its forward reads. So layers that are one product, such as q, k and v,
stay one: each rank has its rows of every member.

Which parts of a sparse weight a rank may have, and the division of its arrays.

Rows are divided as DTensor divides them, at any row. Along K, a part begins at a multiple of the columns whose values
fill 16 bytes and whose indices fill whole bytes: 16 columns of 2:4 in 16 bits, 32 in 8 bits.
"""

# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor, parallel
from torch.distributed.tensor.parallel import ParallelStyle

from louver.formats.codes import NIBBLE_CODES, index_bits
from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.formats.tensor import ROW_ALIGNMENT
from louver.torch.columns import windows_of
from louver.torch.joined import MemberRows
from louver.torch.linear import SparseLinear
from louver.torch.parallel.layout import Layout
from louver.torch.placed import is_placed, strides
from louver.torch.stacks import SparseExperts, SparseStack

__all__ = ["check_division", "columns_unit", "divided", "placed"]


def columns_unit(pattern: Pattern, dtype: torch.dtype) -> int:
    """The columns at whose multiples a weight is divided along K: their values fill 16 bytes, their indices whole bytes."""
    bits = 4 if pattern in NIBBLE_CODES else index_bits(pattern) * pattern.n
    groups = math.lcm(ROW_ALIGNMENT // math.gcd(ROW_ALIGNMENT, pattern.n * dtype.itemsize), 8 // math.gcd(8, bits))
    return groups * pattern.m


def check_division(
    name: str, shape: Sequence[int], pattern: Pattern, dtype: torch.dtype, placement: Placement, ranks: int
) -> None:
    """Raises ValueError unless each of the ranks can have a part of a weight [rows, columns].

    name: of the layer, for the message.
    """
    rows, columns = shape
    if placement.is_shard(0):
        height = windows_of(1 << 20, columns, pattern).height
        part = -(-rows // ranks)
        if part * (ranks - 1) >= rows:
            raise ValueError(
                f"each rank has a row of a weight divided along rows, got {rows} rows of {name} for {ranks} ranks: take fewer "
                "ranks, or leave the layer out of the plan"
            )
        if part % height:
            raise ValueError(
                f"{pattern} is divided along rows at multiples of {height}, got {rows} rows of {name} for {ranks} ranks: take "
                "a number of ranks that divides the windows, or leave the layer out of the plan"
            )
    if placement.is_shard(1):
        if len(pattern.levels) > 1 or pattern.length > 1:
            raise ValueError(
                f"{pattern}, a pattern of vectors, is divided along rows alone, got columns of {name}: use ColwiseParallel"
            )
        unit = columns_unit(pattern, dtype)
        if columns % (unit * ranks):
            fit = [n for n in range(ranks - 1, 0, -1) if columns % (unit * n) == 0]
            fewer = f"take {fit[0]} ranks" if fit and fit[0] > 1 else "leave the layer out of the plan"
            raise ValueError(
                f"K of {dtype} is divided at multiples of {unit} columns, alike for all ranks, got {columns} columns of {name} "
                f"for {ranks} ranks: {fewer}, use ColwiseParallel, or pad K to a multiple of {unit * ranks}"
            )


def divided(x: Tensor, mesh: DeviceMesh, placement: Placement, source: int | None) -> nn.Parameter:
    """A parameter as a DTensor. source: the rank whose data all ranks get; None: each rank divides its own."""
    # Collectives of some backends know no types of 8 bits but bytes.
    bits = x.detach().view(torch.uint8) if x.itemsize == 1 else x.detach()
    made = distribute_tensor(bits, mesh, [placement], src_data_rank=source)
    part = made.to_local().view(x.dtype).contiguous()
    return nn.Parameter(placed(part, mesh, placement, x.shape), x.requires_grad)


def placed(part: Tensor, mesh: DeviceMesh, placement: Placement, shape: Sequence[int]) -> DTensor:
    """The part of this rank of a tensor of this shape."""
    return DTensor.from_local(
        part, mesh, [placement], run_check=False, shape=torch.Size(shape), stride=strides(tuple(shape))
    )


def check_undivided(name: str, weight: Any) -> None:
    """Raises ValueError for a weight that is divided already."""
    if is_placed(weight.values):
        raise ValueError(f"a weight is divided once, got {name} with placements {weight.values.placements}")


def divide_member(name: str, rows: MemberRows, layout: Layout, source: int | None) -> None:
    """Note the layout of a member. When all members have one, the joined weight is divided.

    Raises ValueError for a layout that is not that of the other members, and for sizes that cannot be divided.
    """
    joint, ranks = rows.joint, layout.mesh.size()
    check_undivided(name, joint)
    if not layout.weight.is_shard(0):
        raise ValueError(
            f"layers of one product are divided along rows, got RowwiseParallel for {name}: use ColwiseParallel"
        )
    check_division(name, rows.shape, Pattern.parse(joint.pattern), joint.dtype, layout.weight, ranks)
    if joint.by_turns and rows.shape[0] % (GATE_ROWS * ranks):
        raise ValueError(
            f"gate and up projection of one product are divided at multiples of {GATE_ROWS} rows, alike for all ranks, got "
            f"{rows.shape[0]} rows for {ranks} ranks: take other ranks, or give the styles before compress_"
        )
    others = [each for each in joint.waiting.values() if each != layout]
    if others:
        raise ValueError(f"layers of one product have one style, got {others[0]} and {layout}: use one for all members")
    joint.waiting[rows.part] = layout
    if len(joint.waiting) < len(joint.sizes):
        return
    joint.unpack_().refresh_()
    parts: list[Any] = []
    for part in range(len(joint.sizes)):
        weight = MemberRows(joint, part).separate()
        for array in ("values", "indices", "scale"):
            whole: nn.Parameter | None = getattr(weight, array)
            if whole is not None:
                setattr(weight, array, divided(whole, layout.mesh, layout.weight, source))
        parts.append(weight)
    joint.take_(parts, layout)
    joint.waiting = {}


class ColwiseParallel(parallel.ColwiseParallel):
    """As PyTorch's: each rank has some of the rows of a weight [out, in], and gives their outputs. Of a `SparseLinear`
    too, also of one that is a member of a joined product. Any other module is PyTorch's.

    Raises ValueError for sizes that cannot be divided, before the layer is changed.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if isinstance(module, SparseLinear):
            return _divide(self, module, device_mesh, Shard(0))
        return _noted(self, super()._apply(module, device_mesh), device_mesh, Shard(0))


class RowwiseParallel(parallel.RowwiseParallel):
    """As PyTorch's: each rank has some of the columns of a weight [out, in], and gives a part of each sum. Of a
    `SparseLinear` too: columns are divided at multiples of 16 (types of 16 bits) or 32 (8 bits). Any other module is
    PyTorch's.

    Raises ValueError for sizes that cannot be divided, before the layer is changed.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if isinstance(module, SparseLinear):
            return _divide(self, module, device_mesh, Shard(1))
        return _noted(self, super()._apply(module, device_mesh), device_mesh, Shard(1))


def _layout(style: Any, mesh: DeviceMesh, placement: Placement) -> Layout:
    (inputs,), (outputs,) = style.input_layouts, style.output_layouts
    return Layout(mesh, placement, inputs, outputs, style.use_local_output)


def _noted(style: Any, layer: nn.Module, mesh: DeviceMesh, placement: Placement) -> nn.Module:
    """A dense layer, which `compress_` gives the same layout when it becomes sparse."""
    if isinstance(layer, nn.Linear):
        noted: Any = layer
        noted.layout = _layout(style, mesh, placement)
    return layer


def _divide(style: Any, layer: SparseLinear, mesh: DeviceMesh, placement: Placement) -> SparseLinear:
    weight: Any = layer.weight
    layout = _layout(style, mesh, placement)
    rows = Shard(0) if placement.is_shard(0) else Replicate()
    name = f"a layer [{layer.out_features}, {layer.in_features}]"
    if isinstance(weight, MemberRows):
        divide_member(name, weight, layout, style.src_data_rank)
    else:
        check_undivided(name, weight)
        check_division(name, weight.shape, Pattern.parse(weight.pattern), weight.dtype, placement, mesh.size())
        weight.unpack_().refresh_()
        for each in ("values", "indices"):
            setattr(weight, each, divided(getattr(weight, each), mesh, placement, style.src_data_rank))
        if weight.scale is not None:
            weight.scale = divided(weight.scale, mesh, rows, style.src_data_rank)
    if layer.bias is not None:
        layer.bias = divided(layer.bias, mesh, rows, style.src_data_rank)
    layer.layout = layout
    return layer


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
