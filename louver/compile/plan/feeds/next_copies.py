"""Starts the first copies of a ring for the next iteration of the outer loop, when the products of this iteration are
complete.

for tile:                                  copy the first steps of the first tile
copy the first steps                   for tile:
for step: …                    ⟶           for step: …
store                                      copy the first steps of the next tile
store
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i1
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import position
from louver.compile.plan.feeds.copied_loads import addresses, is_unchanged
from louver.compile.plan.feeds.steps_ahead import Sources, made_again, next_step, taken
from louver.compile.rewrite.insert import insert, insert_before
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp

_RINGS = (
    *(tt.AsyncCommitOp, tt.AsyncCopyOp, tt.AsyncWaitOp, tt.LocalAllocOp, tt.LocalStoreOp, tt.MeetOp),
    *(tt.BoxCopiesOp, tt.ClearSlotsOp, tt.EvenBarriersOp, tt.InitBarriersOp, tt.WaitBarrierOp),
)
"""The operations that ring-copies inserts for the rings of other loops."""


def loop_around(loop: scf.ForOp, loads: Sequence[tt.LoadOp], apart: Container[SSAValue]) -> scf.ForOp | None:
    """The loop around a loop, if copies of `loads` for its next iteration may begin before this iteration ends; None
    otherwise.

    apart: arrays that do not overlap any other array.
    """
    around = loop.parent_op()
    if not isinstance(around, scf.ForOp) or not all(each.box is not None for each in loads):
        return None
    if not all(map(_may_come_later, around.body.walk())) or not all(
        is_unchanged(each, around, apart) for each in loads
    ):
        return None
    block = loop.body.block
    sources = Sources(loop, [value for each in loads for value in addresses(each)], repeated=True)
    firsts = [loop.iter_args[position(each, block.args) - 1] for each in sources.carried]
    others = [value for op in (*sources.made, *sources.stepped) for value in taken(op)]
    others += [value for each in loads for value in addresses(each)]
    outside = [value for value in others if value.owner is not block and value.owner.parent is not block]
    wanted = [loop.lb, loop.ub, loop.step, *firsts, *outside]
    outer = Sources(around, wanted, repeated=False)
    return around if outer.known_ahead and not outer.loads and not sources.loads else None


def _may_come_later(op: Operation) -> bool:
    """Whether copies may begin before an operation. The caller checks that it does not store data that they read."""
    match op:
        case tt.LoadOp():
            return not op.fresh
        case tt.StoreOp() | tt.AtomicRMWOp():
            return not any(result.first_use for result in op.results)
        case _:
            return isinstance(op, (scf.ForOp, scf.WhileOp, scf.IfOp, *_RINGS)) or has_no_effect(op)


def begin_next(around: scf.ForOp, loop: Operation, begun: Sequence[tt.BoxCopiesOp]) -> None:
    """Moves copies from before a loop to after it, for the next iteration of the outer loop.

    The copies of the first iteration begin before the outer loop.

    loop: the operation after the loop.
    """
    block = around.body.block
    sources = Sources(around, [value for op in begun for value in op.operands], repeated=False)
    yes = insert_before(loop, arith.ConstantOp(IntegerAttr(1, i1)))
    known = dict[SSAValue, SSAValue](zip(block.args, (around.lb, *around.iter_args), strict=True))
    following = dict[SSAValue, SSAValue](zip(block.args, block.args, strict=True))
    again = next_step(loop, around, sources, following, following, yes)
    runs = insert_before(around, CmpiOp(around.lb, around.ub, "slt"))
    for place, values, guard in ((around, known, runs), (loop, following, again)):
        here = made_again(place, sources.made, values, guard)
        for op in begun:
            there = insert(place, arith.AndIOp(guard, here.get(op.pred, op.pred)), op).results[0]
            new = insert(place, op.clone({**here, op.pred: there}), op)
            if place is loop:
                new.properties["apart"] = UnitAttr()
    for op in begun:
        Rewriter.erase_op(op)
