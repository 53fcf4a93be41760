"""drop-branches: keeps the arm of a branch that every program takes, because a remainder is below its divisor.

Kernels that give neighbouring tiles to one part of a GPU ask `if part < parts_with_more:`, where `part` is a remainder by the
number of parts. If the number of tiles is a constant that divides evenly, this is always true.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp

from louver.analysis.integers import constant_integer
from louver.compile.rewrite.insert import keep_region
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import FuncOp


def drop_branches(module: ModuleOp) -> None:
    """Rewrite in place. A branch whose condition depends on the program or on the call does not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        always = [op for op in function.body.walk() if isinstance(op, scf.IfOp) and _is_always_true(op)]
        for branch in always:
            keep_region(branch, branch.true_region)
        if always:
            remove_dead(function)


def _is_always_true(branch: scf.IfOp) -> bool:
    """Whether the condition is that a remainder is below a number that is at least its divisor."""
    compared = branch.cond.owner
    if not isinstance(compared, CmpiOp) or compared.name_of_predicate != "slt":
        return False
    rest, most = compared.lhs.owner, constant_integer(compared.rhs)
    by = constant_integer(rest.rhs) if isinstance(rest, arith.RemSIOp) else None
    return by is not None and most is not None and 0 < by <= most
