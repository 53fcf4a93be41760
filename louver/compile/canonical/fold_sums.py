"""fold-sums: a product that is added to a sum starts with that sum as its accumulator.

    p = dot a, b, zeros                                total = dot a, b, sum
    total = sum + p                          ⟶

Products of warps and warpgroups add in place. Triton's own compiler does the same after its frontend.
Valid tile IR in and out, before encodings.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from louver.analysis.integers import is_zero
from louver.analysis.promotion import promotion
from louver.compile.rewrite.insert import insert
from louver.ir.tile import DotOp, FuncOp, element_name
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import tensor_of


def fold_sums(module: ModuleOp) -> None:
    """In place. Dots whose sums are promoted are left: they add to no sum themselves. So are kernels whose elements
    are moved one by one: their tiles leave no registers.
    """
    functions = [op for op in module.body.ops if isinstance(op, FuncOp) and has_known_addresses(op)]
    for op in [op for each in functions for op in each.body.walk() if isinstance(op, arith.AddfOp | arith.AddiOp)]:
        for product, total in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            dot = product.owner
            if isinstance(dot, DotOp) and dot.parent is op.parent and product.has_one_use() and _begins_anew(dot):
                folded = dot.clone()
                folded.operands[list(folded.operands).index(folded.c)] = total
                Rewriter.replace_op(op, [], [insert(op, folded, dot).results[0]])
                Rewriter.erase_op(dot)
                break


def _begins_anew(dot: DotOp) -> bool:
    return is_zero(dot.c) and promotion(dot, element_name(tensor_of(dot.a).element_type)) is None
