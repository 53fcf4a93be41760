"""remove-dead: removes unused values, and values that loops and branches pass on but nothing needs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, OpResult, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from louver.analysis.effects import only_computes
from louver.analysis.passages import came_from, end_of, passages
from louver.compile.rewrite.insert import begin_with, end_with, with_ends
from louver.ir.tile import FuncOp

Passing: TypeAlias = scf.ForOp | scf.IfOp


def remove_dead(function: FuncOp) -> None:
    """Remove dead code in place."""
    ops = _swept(function)
    passing = [op for op in ops if op.regions and isinstance(op, Passing)]
    needed = _needed(ops) if passing else set[SSAValue]()
    kept: dict[Operation, list[int]] = {}
    for op in passing:
        passed = passages(op)
        live = [index for index, each in enumerate(passed) if not needed.isdisjoint(each.names)]
        if len(live) < len(passed):
            kept[op] = live
    if not kept:
        return
    # Nothing yields a dead value any more, so users are erased before what they use.
    for op, live in kept.items():
        for region in op.regions:
            end_with(region.block, [end_of(region.block).operands[index] for index in live])
    for op in reversed(_operations(function.body)):
        if _is_dead(op):
            Rewriter.erase_op(op)
        elif op in kept and isinstance(op, Passing):
            _keep(op, kept[op])


def _operations(region: Region) -> list[Operation]:
    """All operations, outer before inner. A list, because the nested iterators of `walk` take most of this pass's time."""
    found = list[Operation]()
    for block in region.blocks:
        for op in block.ops:
            found.append(op)
            for inner in op.regions:
                found += _operations(inner)
    return found


def _is_dead(op: Operation) -> bool:
    """Whether an operation has neither effects nor users."""
    for result in op.results:
        if result.first_use is not None:
            return False
    return only_computes(type(op)) or would_be_trivially_dead(op)


def _swept(function: FuncOp) -> list[Operation]:
    """Erase operations without effects and users, users first. Returns the others in their order."""
    found = list[Operation]()
    for op in reversed(_operations(function.body)):
        if not _is_dead(op):
            found.append(op)
            continue
        # What it contains was found right before it.
        inside = sum(len(_operations(region)) for region in op.regions)
        del found[len(found) - inside :]
        Rewriter.erase_op(op)
    found.reverse()
    return found


def _needed(ops: Sequence[Operation]) -> set[SSAValue]:
    """The values on which effects, bounds of loops and conditions depend."""
    found, pending = set[SSAValue](), list[SSAValue]()
    for op in ops:
        if only_computes(type(op)):
            continue
        if isinstance(op, scf.ForOp):
            pending += (op.lb, op.ub, op.step)
        elif isinstance(op, scf.IfOp):
            pending.append(op.cond)
        elif not isinstance(op.parent_op(), Passing) or not isinstance(op, scf.YieldOp):
            pending += () if would_be_trivially_dead(op) else op.operands
    while pending:
        value = pending.pop()
        if value in found:
            continue
        found.add(value)
        # Most values are results of operations that pass nothing on.
        if isinstance(value, OpResult) and not value.op.regions:
            pending += value.op.operands
            continue
        sources = came_from(value)
        pending += sources if sources or isinstance(value.owner, Block) else value.owner.operands
    return found


def _keep(op: Passing, live: Collection[int]) -> None:
    """Pass on these values alone. The blocks yield no others."""
    if isinstance(op, scf.ForOp):
        block, given = op.body.block, [op.iter_args[index] for index in live]
        for index in reversed(range(len(op.iter_args))):
            if index not in live:
                block.erase_arg(block.args[index + 1])
        new: Operation = begin_with(op, given)
    else:
        new = with_ends(op)
    for index, result in zip(live, new.results, strict=True):
        op.results[index].replace_all_uses_with(result)
    Rewriter.erase_op(op)
