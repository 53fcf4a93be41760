"""Inserts operations before another one, with the source line of the operation that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerAttr, IntegerType, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.passages import end_of
from louver.ir.tile.types import as_tensor


def insert(before: Operation, new: Operation, like: Operation) -> Operation:
    """Insert `new` before an operation, with the source line of `like`."""
    new.location = like.location
    Rewriter.insert_op(new, InsertPoint.before(before))
    return new


def move(before: Operation, op: Operation) -> None:
    """Move `op` before an operation."""
    op.detach()
    Rewriter.insert_op(op, InsertPoint.before(before))


def insert_before(op: Operation, new: Operation) -> SSAValue:
    """Insert `new` before `op`, with the source line of `op`. Returns its first result."""
    insert(op, new, op)
    return new.results[0]


def insert_after(op: Operation, new: Operation) -> SSAValue:
    """Insert `new` right after `op`, with the source line of `op`. Returns its first result."""
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.after(op))
    return new.results[0]


def integer(before: Operation, value: int, type_: Attribute = i32) -> SSAValue:
    """Insert a constant before an operation: a number, or a tensor of it."""
    if as_tensor(type_) is not None:
        number: Attribute = DenseIntOrFPElementsAttr.from_list(cast(Any, type_), [value])
    else:
        number = IntegerAttr(value, cast("IntegerType", type_))
    return insert_before(before, arith.ConstantOp(number))


def carrying(loop: scf.ForOp, given: Sequence[SSAValue], ends: Sequence[SSAValue]) -> scf.ForOp:
    """Insert before `loop` a loop with its body, other initial values and other yielded values.

    `loop` loses its body. The caller replaces the uses of its results, and removes it.
    """
    end_with(loop.body.block, ends)
    return begin_with(loop, given)


def end_with(block: Block, ends: Sequence[SSAValue]) -> None:
    """Replace the values that the block of a loop or branch yields."""
    end = end_of(block)
    new = scf.YieldOp(*ends)
    new.location = end.location
    Rewriter.replace_op(end, new, [])


def keep_region(branch: scf.IfOp, region: Region) -> None:
    """Replace a branch by what one of its regions does, which may be nothing."""
    values = list[SSAValue]()
    if region.blocks:
        end = end_of(region.block)
        values += end.operands
        Rewriter.erase_op(end)
        Rewriter.inline_block(region.block, InsertPoint.before(branch))
    Rewriter.replace_op(branch, [], values)


def begin_with(loop: scf.ForOp, given: Sequence[SSAValue]) -> scf.ForOp:
    """Insert before `loop` a loop with its body, and initial values for the current arguments of the body."""
    body = Region()
    loop.body.move_blocks(body)
    new = scf.ForOp(loop.lb, loop.ub, loop.step, given, body)
    new.attributes = dict(loop.attributes)
    insert(loop, new, loop)
    return new


def with_ends(branch: scf.IfOp) -> scf.IfOp:
    """Insert before `branch` a branch with its regions, which passes on what they yield now.

    `branch` loses its regions. The caller replaces the uses of its results, and removes it.
    """
    regions = [Region(), Region()]
    for old, region in zip(branch.regions, regions, strict=True):
        old.move_blocks(region)
    types = [each.type for each in end_of(regions[0].block).operands]
    new = scf.IfOp(branch.cond, types, regions[0], regions[1])
    new.attributes = dict(branch.attributes)
    insert(branch, new, branch)
    return new
