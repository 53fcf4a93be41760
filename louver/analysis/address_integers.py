"""The arguments on which the tiles of sparse arguments depend: their addresses, their masks, and whether they are read."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import takewhile
from typing import cast

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.passages import came_from, end_of, roots_of
from louver.ir.comparisons import SelectOp
from louver.ir.tile import DescriptorLoadOp, FuncOp, LoadOp
from louver.ir.walk import ancestors, each_once


def address_arguments(function: FuncOp, sparse: Collection[str]) -> frozenset[str]:
    """The arguments that decide where and whether tiles of the arguments `sparse` are read.

    Masks of other tiles belong to them: a column that the other operand of a dot has as zeros is not read.
    """
    arguments = function.argument_names
    of = {each for each, name in arguments.items() if name in sparse}
    pending, found = [each for op in function.body.walk() for each in _asked(op, of)], set[SSAValue]()
    for value in each_once(pending):
        found.add(value)
        pending += _sources(value)
    return frozenset(name for each, name in arguments.items() if each in found)


def _asked(op: Operation, sparse: set[SSAValue]) -> Iterator[SSAValue]:
    match op:
        case LoadOp() | DescriptorLoadOp() if roots_of(op.operands[0]) & sparse:
            yield from op.operands
            yield from _around(op)
        case LoadOp():
            yield from op.operands[1:]
        case SelectOp():
            yield op.cond
        case _:
            pass


def _sources(value: SSAValue) -> Iterator[SSAValue]:
    """What a value is computed from, with the conditions of branches and the bounds of loops around it. Of what a loop or branch
    passes, only the value's own sources.
    """
    owner = value.owner
    op = owner if isinstance(owner, Operation) else cast(Operation, owner.parent_op())
    if isinstance(op, FuncOp):
        return
    yield from came_from(value)
    yield from _control(op)
    yield from _around(op)


def _around(op: Operation) -> Iterator[SSAValue]:
    for parent in takewhile(lambda each: not isinstance(each, FuncOp), ancestors(op)):
        yield from _control(parent)


def _control(op: Operation) -> tuple[SSAValue, ...]:
    """The operands on which all results depend: of a loop or a branch, those that decide whether its regions run."""
    match op:
        case scf.ForOp():
            return op.lb, op.ub, op.step
        case scf.IfOp():
            return (op.cond,)
        case scf.WhileOp():
            return (end_of(op.before_region.block).operands[0],)
        case _:
            return tuple(op.operands)
