"""Styles of `parallelize_module` for sparse layers: those of PyTorch, which also know `SparseLinear`.

A sparse layer gets no hooks, but a `Layout`, which its forward reads. So layers that are one product, such as q, k and v,
stay one: each rank has its rows of every member.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard, parallel

from louver.formats.pattern import Pattern
from louver.torch.joined import MemberRows
from louver.torch.linear import SparseLinear
from louver.torch.parallel.joints import divide_member
from louver.torch.parallel.layout import Layout
from louver.torch.parallel.sharding import check_division, check_undivided, divided


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
