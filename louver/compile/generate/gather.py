"""Rows of the dense operand that lists name, as schedule IR: lists go to registers a step ahead, rows to the stage."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr, StringAttr
from xdsl.ir import Attribute, SSAValue

from louver.compile.generate.generation import Generation
from louver.compile.plan.schedule import Schedule
from louver.ir.sched import ops
from louver.ir.sched.gathered import GatherOp, LoadRowsOp
from louver.ir.sched.types import PointerType, SizeType
from louver.isa.swizzle import CHUNK
from louver.isa.targets import WARPGROUP_THREADS


def require_gatherable(schedule: Schedule) -> None:
    """Raises ValueError unless rows of the dense operand can be gathered for that schedule."""
    if schedule.order.cluster > 1:
        raise ValueError(f"gathered rows are no multicast, got cluster {schedule.order.cluster}: use cluster 1")
    if not schedule.roles.specialized:
        raise ValueError("rows are gathered by a producer, got specialized False")


def gathered_parameters(plan: Generation) -> dict[str, Attribute]:
    """The kernel's parameters in place of a tensor map of the dense operand.

    Raises ValueError for a stage of fewer pieces than threads copy at a time.
    """
    tile, pieces = plan.schedule.tile, plan.b.swizzle // CHUNK
    if tile.k * pieces < WARPGROUP_THREADS:
        raise ValueError(
            f"{WARPGROUP_THREADS} threads gather {CHUNK} bytes each, got tile_k {tile.k} of {tile.n} columns, {tile.k * pieces} such pieces: "
            "use a longer step or a wider tile"
        )
    types: dict[str, Attribute] = {
        "lists": PointerType(StringAttr("lists"), StringAttr("s32")),
        "b_rows": PointerType(StringAttr("b_rows"), StringAttr(plan.nest.b.element)),
        "b_pitch": SizeType(StringAttr("b_pitch"), IntAttr(64)),
    }
    if plan.nest.b.batch is not None:
        types["b_batch_pitch"] = SizeType(StringAttr("b_batch_pitch"), IntAttr(64))
    return types


def load_rows(
    plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue, ahead: int
) -> None:
    """Entries of the tile's lists for a step."""
    m, _, *entry = tile
    LoadRowsOp(
        operands=[values["lists"], m, step, [] if plan.nest.a.batch is None else entry],
        properties={
            "count": ops.i32_attr(plan.lists),
            "list_rows": ops.i32_attr(plan.list_rows),
            "ahead": ops.i32_attr(ahead),
        },
    )


def gather(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue]) -> None:
    """The rows that the entries in hand name, to the stage in hand."""
    _, n, *entry = tile
    GatherOp(
        operands=[values["b_rows"], n, [] if plan.nest.b.batch is None else entry],
        properties={
            "count": ops.i32_attr(plan.lists),
            "swizzle": ops.i32_attr(plan.b.swizzle),
            "ring": StringAttr("b"),
            "barriers": StringAttr("full"),
        },
    )
