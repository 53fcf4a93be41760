"""Generates the gather of rows of the dense operand in schedule IR.

Lists name the rows. Threads load entries of lists to sets of registers, as many steps ahead as there are sets. They
copy rows to the stage. Rows that are turned go to shared memory of the copying thread first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import IntAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute, SSAValue

from louver.compile.generate.generation import Generation
from louver.compile.plan.schedule import Schedule
from louver.compile.plan.turned import PART_BYTES, Turned
from louver.ir.sched import ops
from louver.ir.sched.gathered import CopyBlocksOp, GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, TurnOp
from louver.ir.sched.types import PointerType, SizeType
from louver.isa.rule import RuleError
from louver.isa.swizzle import CHUNK
from louver.isa.targets import WARPGROUP_THREADS


def require_gatherable(schedule: Schedule) -> None:
    """Raises ValueError unless the schedule allows rows of the dense operand to be gathered."""
    if schedule.order.cluster > 1:
        raise RuleError(f"gathered rows are no multicast, got cluster {schedule.order.cluster}: use cluster 1")
    if not schedule.roles.specialized:
        raise RuleError("rows are gathered by a producer, got specialized False")


def gathered_parameters(plan: Generation) -> dict[str, Attribute]:
    """The kernel parameters that replace the tensor map of the dense operand.

    Raises ValueError for a stage with fewer pieces than threads copy at a time.
    """
    tile, pieces = plan.schedule.tile, plan.b.swizzle // CHUNK
    if not plan.nest.turns and tile.k * pieces < WARPGROUP_THREADS:
        raise RuleError(
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


def first_rows(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue) -> None:
    """Generate the loads of list entries that the first step of a tile finds in registers."""
    _open_rows(plan, values, tile)
    for ahead in range(plan.sets):
        _load_rows(step, ahead, ahead)
    if plan.nest.turns:
        _point_rows(step, 0, 0)
        _load_rows(step, plan.sets, 0)
        for part in range(_parts(plan)):
            _copy_blocks(step, part, 0)


def fill_stage(plan: Generation, step: SSAValue, index: int, begin: Callable[[], None]) -> None:
    """Generate the copies of rows of step number `index` of a body that begins at `step`, and the loads for later
    steps.

    begin: acquires the stage and begins the copies of the values.
    """
    # Rows that are turned are copied one step ahead.
    pointed = index + plan.nest.turns
    _point_rows(step, pointed, pointed % plan.sets)
    _load_rows(step, pointed + plan.sets, pointed % plan.sets)
    begin()
    if not plan.nest.turns:
        GatherOp(properties={"count": ops.i32_attr(plan.lists), **_place(plan)})
        return
    parts = _parts(plan)
    for part in range(parts):
        _turn(plan, part, last=part == parts - 1)
        _copy_blocks(step, part, pointed)


def _parts(plan: Generation) -> int:
    tile = plan.schedule.tile
    return plan.lists * Turned(tile.n, tile.k).parts


def _open_rows(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue]) -> None:
    """Generate the addresses of the tile's lists, and of the columns of its rows."""
    m, n, *entry = tile
    entries = ([] if operand.batch is None else entry for operand in (plan.nest.a, plan.nest.b))
    OpenRowsOp(
        operands=[values["lists"], m, values["b_rows"], n, *entries],
        properties={"count": ops.i32_attr(plan.lists), "list_rows": ops.i32_attr(plan.list_rows)},
    )


def _load_rows(step: SSAValue, ahead: int, register_set: int) -> None:
    LoadRowsOp(operands=[step], properties=_ahead(ahead, register_set))


def _point_rows(step: SSAValue, ahead: int, register_set: int) -> None:
    PointRowsOp(operands=[step], properties=_ahead(ahead, register_set))


def _ahead(ahead: int, register_set: int) -> dict[str, Attribute]:
    return {"ahead": ops.i32_attr(ahead), "set": ops.i32_attr(register_set)}


def _place(plan: Generation) -> dict[str, Attribute]:
    """The attributes for the place of gathered rows."""
    return {
        "swizzle": ops.i32_attr(plan.b.swizzle),
        "ring": StringAttr("b"),
        "barriers": StringAttr("full"),
    }


def _copy_blocks(step: SSAValue, part: int, ahead: int) -> None:
    properties: dict[str, Attribute] = {"part": ops.i32_attr(part), "ahead": ops.i32_attr(ahead)}
    CopyBlocksOp(operands=[step], properties={**properties, "ring": StringAttr("blocks")})


def _turn(plan: Generation, part: int, *, last: bool) -> None:
    properties: dict[str, Attribute] = {
        "part": ops.i32_attr(part),
        "source": StringAttr("blocks"),
        "bytes": ops.i32_attr(PART_BYTES),
        "count": ops.i32_attr(plan.lists),
        **_place(plan),
    }
    TurnOp(properties=properties | ({"last": UnitAttr()} if last else {}))
