"""fold-sums: makes the sum to which a product is added the accumulator of the product.

    p = dot a, b, zeros                                total = dot a, b, sum
    total = sum + p                          ⟶

Products of warps and warpgroups add in place. Triton's compiler does the same after its frontend. Input and output are
valid tile IR, before encodings.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import is_zero
from louver.compile.rewrite.insert import insert
from louver.compile.rewrite.operand_chain import operand_chain
from louver.ir.tile import DotOp, FuncOp, element_name
from louver.ir.tile.dot import promotion
from louver.ir.tile.multiples import has_known_addresses
from louver.ir.tile.types import tensor_of


def fold_sums(module: ModuleOp) -> None:
    """Rewrite in place.

    Dots with promoted sums do not change, because their products do not add to the sum. Kernels whose elements are
    moved one by one do not change either, because their tiles need all registers.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and has_known_addresses(op)]:
        _fold(function, lambda dot, total: promotion(dot, element_name(tensor_of(dot.a).element_type)) is None)


def add_in_place(module: ModuleOp) -> None:
    """add-in-place: makes a dot that is added to a sum of dots, or to zeros, begin with that sum.

    Additions of an epilogue, and sums of two different products, do not change.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        _fold(function, _adds_to)


def _adds_to(dot: DotOp, value: SSAValue) -> bool:
    """Whether a tile is zeros, a tile that a loop carries, or an earlier dot of other pieces of the same matrices."""
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
    """Fold dots that begin at zeros. may: whether a dot may be folded into a sum."""
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
