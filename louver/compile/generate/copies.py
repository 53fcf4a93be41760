"""Generates the copies of the operands of one K step into a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, StringAttr, i32
from xdsl.ir import Attribute, Block, SSAValue

from louver.compile.generate.generation import Generation
from louver.compile.generate.multiply import constant
from louver.compile.plan.layout import OperandLayout, metadata_bytes
from louver.compile.signature import TAIL_MAP
from louver.formats.pattern import Pattern
from louver.ir.sched import ops, staged
from louver.isa.bulk import Eviction

Operand: TypeAlias = Literal["sparse", "dense"]
"""An operand that a producer copies. Earlier kernels may write all arrays but the sparse operand."""


class Edge(NamedTuple):
    """The part of the dense operand in a tile that lies in the matrix. Copies of other parts are slow (`copied_box`).

    rows: the number of rows; None where all copies bring whole boxes.
    columns: the first column of each box; empty for boxes along K.
    """

    rows: SSAValue | None = None
    columns: Sequence[SSAValue] = ()


def edge_of(plan: Generation, values: dict[str, SSAValue], tile: Block) -> Edge:
    """The edge of the dense operand in a tile."""
    n = tile.args[1]
    if plan.tails:
        most = ops.i32_attr(plan.schedule.tile.n)
        left = staged.RowsLeftOp(operands=[values["N"], n], properties={"most": most}, result_types=[i32])
        left.rows.name_hint = "rows"
        return Edge(rows=left.rows)
    if plan.gathers or plan.b.major == "k":
        return Edge()
    width = plan.b.copy_step[0]
    columns: list[SSAValue] = [n]
    for copy in range(1, _copies(plan)):
        if plan.shared:
            # The share of a CTA begins elsewhere.
            columns.append(arith.AddiOp(n, constant(copy * width)).result)
            continue
        properties = {"offset": ops.i32_attr(copy * width), "width": ops.i32_attr(width)}
        box = staged.BoxColumnOp(operands=[values["N"], n], properties=properties, result_types=[i32])
        columns.append(box.column)
    return Edge(columns=columns)


def _copies(plan: Generation) -> int:
    """The copies of the dense operand that a CTA begins in a step."""
    return plan.b.copies // plan.schedule.order.cluster if plan.shared and plan.b.major == "mn" else plan.b.copies


def copy_stage(
    plan: Generation,
    values: dict[str, SSAValue],
    tile: Sequence[SSAValue],
    step: SSAValue,
    edge: Edge,
    operands: Sequence[Operand] = ("sparse", "dense"),
) -> None:
    """Generate the copies of the operands of one step.

    A CTA begins the loads that only it needs before it waits for the invitations of the other CTAs.
    """
    ops.AcquireOp(properties={"barriers": StringAttr("empty")})
    expect(plan, edge.rows, metadata="sparse" in operands)
    shared = plan.shared and "dense" in operands
    if shared:
        ops.InviteOp(properties={"barriers": StringAttr("invited")})
    if "sparse" in operands:
        copy_sparse(plan, values, tile, step)
    if shared:
        ops.WaitOp(properties={"barriers": StringAttr("invited")})
    if "dense" in operands:
        _copy_dense(plan, values, tile, step, edge)


def expect(plan: Generation, rows: SSAValue | None = None, *, metadata: bool = True) -> None:
    """Announce the bytes of a stage. metadata: whether metadata is copied here too, perhaps on separate barriers."""
    if plan.schedule.ring.metadata == "barrier" and metadata:
        ops.ExpectOp(operands=[None], properties={"barriers": StringAttr(plan.metadata_barriers)})
    ops.ExpectOp(operands=[rows], properties={"barriers": StringAttr("full")})


def copy_sparse(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue) -> None:
    """Generate the copies of values, after those of metadata if stages hold it.

    Consumers need metadata before the operands.
    """
    m, _, *entry = tile
    if plan.staged:
        _copy_metadata(plan, values, tile, step)
    own = [] if plan.nest.a.batch is None else entry
    evict = "last" if plan.schedule.order.l2 == "values" else None
    kept = arith.MuliOp(step, constant(plan.a.copies * plan.a.box[0])).result
    for copy in range(plan.a.copies):
        place = [_moved(kept, plan.a, copy), m, *own]
        _bulk_load((values["a_map"], None, None), place, "a", copy * plan.a.box_bytes, None, evict)


def _moved(first: SSAValue, operand: OperandLayout, copy: int) -> SSAValue:
    """The coordinate of copy number `copy` of an operand, in the dimension in which copies differ."""
    return arith.AddiOp(first, constant(copy * operand.copy_step[0])).result if copy else first


def _copy_dense(
    plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue, edge: Edge
) -> None:
    _, n, *entry = tile
    own = [] if plan.nest.b.batch is None else entry
    evict = "first" if plan.schedule.order.l2 == "values" else None
    k = arith.MuliOp(step, constant(plan.schedule.tile.k)).result
    if plan.indexed:
        pattern = Pattern.parse(plan.nest.a.pattern)
        k = arith.MuliOp(arith.DivUIOp(k, constant(pattern.n)), constant(pattern.m)).result
    share = _dense_share(plan)
    source = values["b_map"], None if edge.rows is None else values[TAIL_MAP], edge.rows
    for copy in range(_copies(plan)):
        # The columns of a box that replaces one outside the matrix are never stored.
        coordinates = [edge.columns[copy], k] if edge.columns else [_moved(k, plan.b, copy), n]
        _bulk_load(source, [*coordinates, *own], "b", copy * plan.b.box_bytes, share, evict)


def stage_metadata_bytes(plan: Generation) -> int:
    """The bytes of metadata in a stage."""
    return metadata_bytes(plan.schedule, plan.nest.a.element, plan.nest.a.selection)


def _copy_metadata(plan: Generation, values: dict[str, SSAValue], tile: Sequence[SSAValue], step: SSAValue) -> None:
    m, _, *entry = tile
    staged.CopyMetadataOp(
        operands=[values["metadata"], m, step, [] if plan.nest.a.batch is None else entry],
        properties={
            "ring": StringAttr("metadata"),
            "bytes": ops.i32_attr(stage_metadata_bytes(plan)),
            "barriers": StringAttr(plan.metadata_barriers),
        },
    )


Share: TypeAlias = tuple[int, int, int]
"""How a multicast load depends on the rank of the CTA: coordinate, elements for each rank, shared-memory bytes for each
rank.
"""


def _dense_share(plan: Generation) -> Share | None:
    cluster = plan.schedule.order.cluster
    if not plan.shared:
        return None
    if plan.b.major == "k":
        rows = plan.b.box[1] // cluster
        return (1, rows, rows * plan.b.box[0] * plan.b.element_bytes)
    boxes = plan.b.copies // cluster
    return (0, boxes * plan.b.copy_step[0], boxes * plan.b.box_bytes)


def _bulk_load(
    source: tuple[SSAValue, SSAValue | None, SSAValue | None],
    coordinates: list[SSAValue],
    ring: str,
    offset: int,
    share: Share | None,
    evict: Eviction | None,
) -> None:
    properties: dict[str, Attribute] = {
        "ring": StringAttr(ring),
        "offset": ops.i32_attr(offset),
        "barriers": StringAttr("full"),
    }
    if share is not None:
        properties["multicast"] = ArrayAttr([ops.i32_attr(value) for value in share])
    if evict is not None:
        properties["evict"] = StringAttr(evict)
    whole, tail, rows = source
    ops.BulkLoadOp(operands=[whole, coordinates, tail, rows], properties=properties)
