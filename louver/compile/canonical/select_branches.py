"""select-branches: changes a branch that only computes to a select between both results.

`if beta != 0.0:` around elementwise steps becomes a select with one condition for all elements. A branch stays if it
accesses memory, because its addresses may be valid only under the condition. It also stays if it divides integers or
contains loops.
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert_before
from louver.ir.arith import DIVISIONS
from louver.ir.comparisons import SelectOp
from louver.ir.tile import FuncOp


def select_branches(module: ModuleOp) -> None:
    """Rewrite in place, inner branches first."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        for branch in reversed([op for op in function.body.walk() if isinstance(op, scf.IfOp)]):
            if branch.results and all(_only_computes(op) for region in branch.regions for op in region.block.ops):
                _select(branch)


def _only_computes(op: Operation) -> bool:
    if isinstance(op, scf.YieldOp):
        return True
    return not op.regions and not isinstance(op, DIVISIONS) and is_side_effect_free(op)


def _select(branch: scf.IfOp) -> None:
    chosen: list[list[SSAValue]] = []
    for region in branch.regions:
        end = end_of(region.block)
        chosen.append(list(end.operands))
        Rewriter.erase_op(end)
        Rewriter.inline_block(region.block, InsertPoint.before(branch))
    values = [insert_before(branch, SelectOp(branch.cond, *each)) for each in zip(*chosen, strict=True)]
    Rewriter.replace_op(branch, [], values)
