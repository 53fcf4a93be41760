"""remove-dead: removes unused values, results of branches too, and loop-carried values that only the loop itself uses."""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.transforms.dead_code_elimination import is_trivially_dead, would_be_trivially_dead

from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import begin_with, end_with, insert
from louver.ir.tile import FuncOp


def remove_dead(function: FuncOp) -> None:
    """Remove dead code in place."""
    _sweep(function)
    for op in [op for op in function.body.walk() if isinstance(op, scf.ForOp | scf.IfOp)]:
        if isinstance(op, scf.ForOp):
            _drop_carried(op)
        else:
            _drop_results(op)
    _sweep(function)


def _drop_results(branch: scf.IfOp) -> None:
    """Remove results that nothing uses."""
    kept = [index for index, result in enumerate(branch.results) if result.first_use is not None]
    if len(kept) == len(branch.results):
        return
    for region in branch.regions:
        end_with(region.block, [end_of(region.block).operands[index] for index in kept])
    then, otherwise = (branch.detach_region(region) for region in list(branch.regions))
    new = scf.IfOp(branch.cond, [branch.results[index].type for index in kept], then, otherwise)
    new.attributes = dict(branch.attributes)
    insert(branch, new, branch)
    for index, result in zip(kept, new.results, strict=True):
        result.name_hint = branch.results[index].name_hint
        branch.results[index].replace_all_uses_with(result)
    Rewriter.erase_op(branch)


def _sweep(function: FuncOp) -> None:
    """Erase operations without effects and users, users first."""
    for op in reversed(list(function.body.walk())):
        if is_trivially_dead(op):
            Rewriter.erase_op(op)


def _drop_carried(loop: scf.ForOp) -> None:
    """Remove carried values that are used only to compute their next values."""
    block, end = loop.body.block, end_of(loop.body.block)
    carried = range(len(loop.iter_args))
    idle = [
        index
        for index in carried
        if loop.results[index].first_use is None and _only_reaches(block.args[index + 1], end, index)
    ]
    if not idle:
        return
    kept = [index for index in carried if index not in idle]
    end_with(block, [end.operands[index] for index in kept])
    for op in reversed(list(block.ops)):
        if is_trivially_dead(op):
            Rewriter.erase_op(op)
    for index in reversed(idle):
        block.erase_arg(block.args[index + 1])
    new = begin_with(loop, [loop.iter_args[index] for index in kept])
    for index, result in zip(kept, new.results, strict=True):
        loop.results[index].replace_all_uses_with(result)
    Rewriter.erase_op(loop)


def _only_reaches(value: SSAValue, end: Operation, index: int) -> bool:
    """Whether a carried value, through operations without effects, is used only for its own next value."""
    pending = [value]
    while pending:
        for use in pending.pop().uses:
            if use.operation is end:
                if use.index != index:
                    return False
            elif (
                use.operation.parent is not end.parent
                or use.operation.regions
                or not would_be_trivially_dead(use.operation)
            ):
                return False
            else:
                pending += use.operation.results
    return True
