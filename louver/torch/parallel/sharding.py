"""Which parts of a sparse weight a rank may have, and the division of its arrays.

Rows are divided as DTensor divides them, at any row. Along K, a part begins at a multiple of the columns whose values
fill 16 bytes and whose indices fill whole bytes: 16 columns of 2:4 in 16 bits, 32 in 8 bits.
"""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, distribute_tensor

from louver.formats.codes import NIBBLE_CODES, index_bits
from louver.formats.pattern import Pattern
from louver.formats.tensor import ROW_ALIGNMENT
from louver.torch.columns import windows_of
from louver.torch.placed import is_placed, strides

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
