"""join-choices: changes a select of tiles with the condition of a branch in the same block to a result of that branch.

`if last: store(sum); sum = zeros` arrives as a branch that stores, and a select of the sum. As a result of the branch,
the sum stays in its registers if the branch is not taken. Input and output are valid tile IR.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import Rewriter

from louver.compile.rewrite.insert import end_with, insert
from louver.compile.rewrite.materialize import dominates
from louver.ir.comparisons import SelectOp
from louver.ir.tile.types import as_tensor
from louver.ir.walk import ancestor_in


def join_choices(module: ModuleOp) -> None:
    """Rewrite branches in place."""
    for branch in [op for op in module.walk() if isinstance(op, scf.IfOp) and not op.results]:
        choices = [
            use.operation
            for use in branch.cond.uses
            if isinstance(use.operation, SelectOp)
            and use.operation.cond is branch.cond
            and as_tensor(use.operation.result.type) is not None
            and _may_be_its_result(use.operation, branch)
        ]
        if choices:
            _join(branch, choices)


def _may_be_its_result(choice: SelectOp, branch: scf.IfOp) -> bool:
    """Whether both values are defined before the branch, and only code after the branch uses the select."""
    if choice.parent is not branch.parent:
        return False
    given = all(dominates(value, branch) for value in (choice.lhs, choice.rhs))
    return given and all(_stands_behind(use.operation, branch) for use in choice.result.uses)


def _stands_behind(op: Operation, branch: scf.IfOp) -> bool:
    """Whether an operation, or an ancestor of it, follows a branch in the block of the branch."""
    outer = ancestor_in(branch.parent, op)
    return outer is not None and branch.is_before_in_block(outer)


def _join(branch: scf.IfOp, choices: list[SelectOp]) -> None:
    taken, other = branch.detach_region(0), branch.detach_region(0)
    if not other.blocks:
        end = scf.YieldOp()
        end.location = branch.location
        other = Region(Block([end]))
    for region, values in ((taken, [each.lhs for each in choices]), (other, [each.rhs for each in choices])):
        end_with(region.block, values)
    new = scf.IfOp(branch.cond, [each.result.type for each in choices], taken, other)
    insert(branch, new, branch)
    for result, choice in zip(new.results, choices, strict=True):
        Rewriter.replace_op(choice, [], [result])
    Rewriter.erase_op(branch)
