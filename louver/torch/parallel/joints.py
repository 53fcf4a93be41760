"""The division of layers that are one product: each rank takes its rows of every member."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from torch import nn

from louver.formats.gated import GATE_ROWS
from louver.formats.pattern import Pattern
from louver.torch.joined import MemberRows
from louver.torch.parallel.layout import Layout
from louver.torch.parallel.sharding import check_division, check_undivided, divided


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
