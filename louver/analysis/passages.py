"""How loops and branches pass values: from operands and region terminators to region arguments and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import scf
from xdsl.ir import Block, BlockArgument, Operation, OpResult, SSAValue

from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp
from louver.ir.walk import ancestors, each_once


@dataclass(frozen=True, slots=True)
class Passage:
    """A value that is passed. sources: its alternatives, that from before a loop first. names: its values afterwards."""

    sources: tuple[SSAValue, ...]
    names: tuple[SSAValue, ...]


def passages(op: Operation | None) -> list[Passage]:
    """The values that a loop or branch passes, in the order of its yields. Empty for other operations."""
    match op:
        case scf.ForOp():
            arguments = op.body.block.args[1:]
            passed = zip(op.iter_args, end_of(op.body.block).operands, arguments, op.results, strict=True)
            return [Passage((first, next_), (argument, result)) for first, next_, argument, result in passed]
        case scf.IfOp() if op.results:
            ends = zip(*(end_of(region.block).operands for region in op.regions), strict=True)
            return [Passage(sources, (result,)) for sources, result in zip(ends, op.results, strict=True)]
        case scf.WhileOp():
            before, after = op.before_region.block, op.after_region.block
            carried = zip(op.arguments, end_of(after).operands, before.args, strict=True)
            checked = zip(end_of(before).operands[1:], after.args, op.results, strict=True)
            return [
                *(Passage((first, next_), (argument,)) for first, next_, argument in carried),
                *(Passage((value,), (argument, result)) for value, argument, result in checked),
            ]
        case _:
            return []


def came_from(value: SSAValue) -> Sequence[SSAValue]:
    """The possible sources of an argument or result of a loop or branch. Empty for other values and for a counter."""
    inside = isinstance(value, BlockArgument)
    op = value.owner.parent_op() if inside else value.owner
    match op:
        case scf.ForOp():
            index = cast("BlockArgument | OpResult", value).index - inside
            return (op.iter_args[index], end_of(op.body.block).operands[index]) if index >= 0 else ()
        case scf.IfOp() if not inside:
            index = cast(OpResult, value).index
            return tuple(end_of(region.block).operands[index] for region in op.regions)
        case scf.WhileOp():
            found = (passage.sources for passage in passages(op) if any(name is value for name in passage.names))
            return next(found, ())
        case _:
            return ()


def _named(op: scf.ForOp | scf.IfOp, index: int) -> Sequence[SSAValue]:
    """The names of the value that a loop or branch passes at this place."""
    inside = (op.body.block.args[index + 1],) if isinstance(op, scf.ForOp) else ()
    return (*inside, op.results[index])


def passed_to(op: Operation, index: int) -> Sequence[SSAValue]:
    """The values that receive operand `index` of a loop, or of what ends a region of a loop or branch. Empty for others."""
    parent = op.parent_op()
    if isinstance(op, scf.ForOp) and index >= 3:
        return _named(op, index - 3)
    if isinstance(op, scf.WhileOp):
        return passages(op)[index].names
    if isinstance(op, scf.ConditionOp) and isinstance(parent, scf.WhileOp) and index >= 1:
        return passages(parent)[len(parent.arguments) + index - 1].names
    if isinstance(op, scf.YieldOp) and isinstance(parent, scf.ForOp | scf.IfOp):
        return _named(parent, index)
    if isinstance(op, scf.YieldOp) and isinstance(parent, scf.WhileOp):
        return passages(parent)[index].names
    return ()


def end_of(block: Block) -> Operation:
    """The operation that ends a block, and yields what a loop or branch passes on."""
    last = block.last_op
    assert last is not None
    return last


def stepping_loop(op: Operation) -> scf.ForOp | None:
    """The loop of whose body an operation is a part, by itself or in branches; None if there is none."""
    around = op.parent_op()
    while isinstance(around, scf.IfOp):
        around = around.parent_op()
    return around if isinstance(around, scf.ForOp) else None


def is_before(value: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is computed before a loop."""
    owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    return owner is not None and not loop.is_ancestor(owner)


def function_of(op: Operation) -> FuncOp:
    """The function of which an operation is a part."""
    return next(each for each in (op, *ancestors(op)) if isinstance(each, FuncOp))


def outermost(op: Operation) -> Operation:
    """The ancestor of an operation in the block of the function."""
    return next(each for each in (op, *ancestors(op)) if isinstance(each.parent_op(), FuncOp | None))


def runs_again(op: Operation) -> bool:
    """Whether an operation is in a loop."""
    return any(isinstance(each, scf.ForOp | scf.WhileOp) for each in ancestors(op))


def root_of(pointer: SSAValue) -> SSAValue | None:
    """The argument of a function from which a pointer, descriptor or tensor of pointers is made; None if there is none."""
    return next(_origins(pointer), None)


def roots_of(pointer: SSAValue) -> set[SSAValue]:
    """All arguments of a function from which a pointer, descriptor or tensor of pointers may be made."""
    return set(_origins(pointer))


def _origins(pointer: SSAValue) -> Iterator[SSAValue]:
    pending = [pointer]
    for value in each_once(pending):
        owner = value.owner
        if sources := came_from(value):
            pending += sources
        elif isinstance(owner, SelectOp):
            pending += (owner.lhs, owner.rhs)
        elif isinstance(owner, Operation):
            pending += owner.operands[:1]
        elif not isinstance(owner.parent_op(), scf.ForOp):
            yield value
