"""fold-sums: a product that is added to a sum starts with that sum as its accumulator.

    p = dot a, b, zeros                                total = dot a, b, sum
    total = sum + p                          ⟶

Products of warps and warpgroups add in place. Triton's own compiler does the same after its frontend.
Valid tile IR in and out, before encodings.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import is_zero
from louver.analysis.promotion import promotion
from louver.compile.rewrite.insert import insert
from louver.compile.rewrite.operand_chain import operand_chain
from louver.ir.tile import DotOp, FuncOp, element_name
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import tensor_of


def fold_sums(module: ModuleOp) -> None:
    """In place. Dots whose sums are promoted are left: they add to no sum themselves. So are kernels whose elements
    are moved one by one: their tiles leave no registers.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and has_known_addresses(op)]:
        _fold(function, lambda dot, total: promotion(dot, element_name(tensor_of(dot.a).element_type)) is None)


def add_in_place(module: ModuleOp) -> None:
    """In place, of products: each dot that is added to a sum of dots, or to zeros. What an epilogue adds stays behind the sum, and so
    do sums of two products.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        _fold(function, _adds_to)


def _adds_to(dot: DotOp, value: SSAValue) -> bool:
    """Whether a tile is zeros, one that a loop carries, or that of a dot before, of another piece of the same matrices."""
    owner = value.owner
    if isinstance(owner, DotOp):
        return owner.parent is dot.parent and owner.is_before_in_block(dot) and _reads_like(owner, dot)
    carried = isinstance(owner, Block) and isinstance(owner.parent_op(), scf.ForOp)
    return carried or isinstance(owner, scf.ForOp) or is_zero(value)


def _reads_like(dot: DotOp, other: DotOp) -> bool:
    """Whether both multiply pieces of the same two matrices."""
    for left, right, dimension in ((dot.a, other.a, -1), (dot.b, other.b, -2)):
        one, two = operand_chain(left, dot, dimension), operand_chain(right, other, dimension)
        if one is None or two is None or not one.reads_like(two):
            return False
    return True


def _fold(function: FuncOp, may: Callable[[DotOp, SSAValue], bool]) -> None:
    """Fold products that begin anew. may: whether a dot may be folded into that sum."""
    for op in [op for op in function.body.walk() if isinstance(op, arith.AddfOp | arith.AddiOp)]:
        for product, total in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            dot = product.owner
            if not isinstance(dot, DotOp) or dot.parent is not op.parent or not product.has_one_use():
                continue
            if is_zero(dot.c) and may(dot, total):
                folded = dot.clone()
                folded.operands[list(folded.operands).index(folded.c)] = total
                Rewriter.replace_op(op, [], [insert(op, folded, dot).results[0]])
                Rewriter.erase_op(dot)
                break
