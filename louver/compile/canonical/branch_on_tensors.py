"""branch-on-tensors: makes a branch of what follows a choice between sparse tensors, so that each arm reads one of them.

`w = wq if part == 0 else wk` chooses one of two addresses. A sparse tensor is described by its argument, so code that reads
the chosen tensor is repeated: each arm of a branch has one copy, with its own tensor. Operations that do not depend on the
choice stay before the branch. Other choices by the same condition are decided in each arm, so that three tensors chosen by one
condition make two copies, not eight. Input and output are valid tile IR.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from louver.analysis.passages import end_of, roots_of
from louver.compile.canonical.propagate_sparsity import is_address, sparse_arguments
from louver.compile.rewrite.insert import end_with, insert, keep_region
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp


def branch_on_tensors(module: ModuleOp) -> None:
    """Rewrite in place, outer and earlier choices first. A choice that a loop carries on does not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        arguments = sparse_arguments(function)
        while arguments and (choice := _first_choice(function, arguments)) is not None:
            _branch(choice)


def _first_choice(function: FuncOp, arguments: set[SSAValue]) -> Operation | None:
    return next((op for op in function.body.walk() if _chooses(op, arguments)), None)


def _chooses(op: Operation, arguments: set[SSAValue]) -> bool:
    """Whether a program chooses a sparse tensor here by a condition of its own, and code of the same block uses it."""
    if not isinstance(op, scf.IfOp) and not (isinstance(op, SelectOp) and isinstance(op.cond.type, IntegerType)):
        return False
    chosen = [each for each in op.results if is_address(each) and any(use.operation.next_op for use in each.uses)]
    return any(len(roots) > 1 and roots & arguments for roots in map(roots_of, chosen))


def _branch(choice: Operation) -> None:
    """Replace a choice and what follows it in its block by a branch."""
    block = choice.parent
    assert block is not None
    end = end_of(block)
    rest = _dependent(choice)
    arms = (_arm(choice, 0, rest, end, kept=False), _arm(choice, 1, rest, end, kept=True))
    new = scf.IfOp(choice.operands[0], [each.type for each in end.operands], *arms)
    insert(choice, new, choice)
    for result, value in zip(new.results, end.operands, strict=True):
        result.name_hint = value.name_hint
    end.operands = new.results
    Rewriter.erase_op(choice)


def _dependent(choice: Operation) -> list[Operation]:
    """What follows a choice in its block. Operations that need neither it nor anything that stays are moved before it."""
    stay, found = {choice}, list[Operation]()
    op = choice.next_op
    while op is not None and op.next_op is not None:
        following = op.next_op
        if op.regions or not is_side_effect_free(op) or any(value.owner in stay for value in op.operands):
            stay.add(op)
            found.append(op)
        else:
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(choice))
        op = following
    return found


def _arm(choice: Operation, index: int, rest: Sequence[Operation], end: Operation, *, kept: bool) -> Region:
    """One arm of the branch: that of the choice, and the rest of the block. kept: the rest itself moves here, not a copy."""
    known = dict[SSAValue, SSAValue]()
    if isinstance(choice, scf.IfOp):
        region = choice.detach_region(0)
        made = list(end_of(region.block).operands)
    else:
        region, made = Region(Block([scf.YieldOp()])), [choice.operands[1 + index]]
        end_of(region.block).location = choice.location
    if kept:
        for result, value in zip(choice.results, made, strict=True):
            result.replace_all_uses_with(value)
    else:
        known |= zip(choice.results, made, strict=True)
    last = end_of(region.block)
    for op in rest:
        if kept:
            op.detach()
        Rewriter.insert_op(op if kept else op.clone(known), InsertPoint.before(last))
    end_with(region.block, [known.get(value, value) for value in end.operands])
    _decide(region, choice.operands[0], index)
    return region


def _decide(region: Region, condition: SSAValue, index: int) -> None:
    """Take one side of all choices by a condition that is known in a region. index: 0 where it holds, 1 where it does not."""
    found = [op for op in region.walk() if isinstance(op, SelectOp | scf.IfOp) and op.operands[0] is condition]
    for op in reversed(found):
        if isinstance(op, SelectOp):
            Rewriter.replace_op(op, [], [op.operands[1 + index]])
        else:
            keep_region(op, op.regions[index])
