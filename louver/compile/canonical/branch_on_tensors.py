"""branch-on-tensors: makes a branch of what follows a choice between sparse tensors, so that each arm reads one of them.

`w = wq if part == 0 else wk` chooses one of two addresses. A sparse tensor is described by its argument, so code that reads
the chosen tensor is repeated: each arm of a branch has one copy, with its own tensor. Operations that do not depend on the
condition stay before the branch. Other choices by it, such as those of strides, are decided in each arm, so that three tensors
chosen by one condition make two copies, not eight. One of three tensors makes three: a choice that one arm alone uses moves
there. Input and output are valid tile IR.
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
from louver.compile.rewrite.insert import insert, keep_region
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp


def branch_on_tensors(module: ModuleOp) -> None:
    """Rewrite in place, outer and earlier choices first, and a choice of another one's result before that. A choice that a loop
    carries on does not change.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        arguments = sparse_arguments(function)
        while arguments and (choice := _first_choice(function, arguments)) is not None:
            _branch(choice)


def _first_choice(function: FuncOp, arguments: set[SSAValue]) -> Operation | None:
    found = next((op for op in function.body.walk() if chooses(op, arguments)), None)
    last = found
    while found is not None:
        last = found
        users = {use.operation for result in found.results for use in result.uses}
        found = next((op for op in users if op.parent is found.parent and chooses(op, arguments)), None)
    return last


def chooses(op: Operation, arguments: set[SSAValue]) -> bool:
    """Whether a program chooses a sparse tensor here by a condition of its own, and code of the same block uses it."""
    if not isinstance(op, scf.IfOp) and not (isinstance(op, SelectOp) and isinstance(op.cond.type, IntegerType)):
        return False
    chosen = [each for each in op.results if is_address(each) and any(use.operation.next_op for use in each.uses)]
    return any(len(roots) > 1 and roots & arguments for roots in map(roots_of, chosen))


def _branch(choice: Operation) -> None:
    """Replace a choice, and what else depends on its condition or follows it, by a branch."""
    assert choice.parent is not None
    end, condition, rest = end_of(choice.parent), choice.operands[0], _dependent(choice)
    copied, kept = (_arm(rest, end, kept=kept) for kept in (False, True))
    new = scf.IfOp(condition, [each.type for each in end.operands], copied, kept)
    insert(end, new, choice)
    for result, value in zip(new.results, end.operands, strict=True):
        result.name_hint = value.name_hint
    end.operands = new.results
    for index, region in enumerate(new.regions):
        decide(region, condition, index)
    _sink(new)


def _dependent(choice: Operation) -> list[Operation]:
    """A choice, and what else depends on its condition in its block or follows it with effects."""
    found, moved, effects = list[Operation](), {choice.operands[0]}, False
    assert choice.parent is not None
    for op in list(choice.parent.ops)[:-1]:
        has_effect = op is not choice and (bool(op.regions) or not is_side_effect_free(op))
        if (has_effect and effects) or any(value in moved for each in op.walk() for value in each.operands):
            moved.update(op.results)
            found.append(op)
            effects |= has_effect or op is choice
    return found


def _sink(branch: scf.IfOp) -> None:
    """Move choices before a branch that one of its regions alone uses to that region."""
    op = branch.prev_op
    while op is not None:
        before, users = op.prev_op, [use.operation for result in op.results for use in result.uses]
        for region in branch.regions if isinstance(op, SelectOp) and users else ():
            if all(region.is_ancestor(user) for user in users):
                op.detach()
                Rewriter.insert_op(op, InsertPoint.at_start(region.block))
        op = before


def _arm(rest: Sequence[Operation], end: Operation, *, kept: bool) -> Region:
    """One arm of a branch instead of the end of a block. kept: the operations themselves move here, not copies."""
    known, last = dict[SSAValue, SSAValue](), scf.YieldOp(*end.operands)
    region = Region(Block([last]))
    last.location = end.location
    for op in rest:
        if kept:
            op.detach()
        Rewriter.insert_op(op if kept else op.clone(known), InsertPoint.before(last))
    last.operands = [known.get(value, value) for value in end.operands]
    return region


def decide(region: Region, condition: SSAValue, index: int) -> None:
    """Take one side of all choices by a condition that is known in a region. index: 0 where it holds, 1 where it does not."""
    found = [op for op in region.walk() if isinstance(op, SelectOp | scf.IfOp) and op.operands[0] is condition]
    for op in reversed(found):
        if isinstance(op, SelectOp):
            Rewriter.replace_op(op, [], [op.operands[1 + index]])
        else:
            keep_region(op, op.regions[index])
