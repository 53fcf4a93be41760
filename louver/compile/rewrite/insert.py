"""Inserts operations before another one, with the source line of the operation that they replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr, IntegerType, i32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter


def insert(before: Operation, new: Operation, like: Operation) -> Operation:
    """Put `new` before an operation, at the source line of `like`."""
    new.location = like.location
    Rewriter.insert_op(new, InsertPoint.before(before))
    return new


def insert_before(op: Operation, new: Operation) -> SSAValue:
    """Put `new` before `op`, at its source line; returns its first result, if it has one."""
    insert(op, new, op)
    return new.results[0]


def insert_after(op: Operation, new: Operation) -> SSAValue:
    """Put `new` right behind `op`, at its source line; returns its first result."""
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.after(op))
    return new.results[0]


def integer(before: Operation, value: int, type_: Attribute = i32) -> SSAValue:
    """A constant before an operation."""
    return insert_before(before, arith.ConstantOp(IntegerAttr(value, cast("IntegerType", type_))))


def carrying(loop: scf.ForOp, given: Sequence[SSAValue], ends: Sequence[SSAValue]) -> scf.ForOp:
    """A loop with the body of `loop`, before it, that begins with other values and ends with others, for the body's arguments.

    The caller replaces the uses of the results of `loop`, which has no body any more, and removes it.
    """
    end_with(loop.body.block, ends)
    return begin_with(loop, given)


def end_with(block: Block, ends: Sequence[SSAValue]) -> None:
    """Let the block of a loop or branch end with other values."""
    end = block.last_op
    assert end is not None
    new = scf.YieldOp(*ends)
    new.location = end.location
    Rewriter.replace_op(end, new, [])


def begin_with(loop: scf.ForOp, given: Sequence[SSAValue]) -> scf.ForOp:
    """A loop with the body of `loop`, before it, that begins with values for the arguments that the body has now."""
    body = Region()
    loop.body.move_blocks(body)
    new = scf.ForOp(loop.lb, loop.ub, loop.step, given, body)
    new.attributes = dict(loop.attributes)
    insert(loop, new, loop)
    return new
