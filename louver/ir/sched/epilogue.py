"""Operations in the region of a store: the arrays that an epilogue reads besides the sums.

A store's region has one block argument, the sum, or two, the sums of gate and up that make one element of a gated product.
"""

from __future__ import annotations

from xdsl.dialects.builtin import AnyFloatConstr, IntegerType, UnitAttr
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
)

from louver.ir.sched.types import PointerType, SizeType


@irdl_op_definition
class ScalarOp(IRDLOperation):
    """The one element that a pointer points to."""

    name = "sched.scalar"
    pointer = operand_def(PointerType)
    result = result_def(AnyFloatConstr | base(IntegerType))
    assembly_format = "$pointer `:` type($pointer) `->` type($result) attr-dict"


@irdl_op_definition
class MatrixOp(IRDLOperation):
    """The element of an array of the output's sizes that belongs to the output's element; 0 outside.

    `transposed`: it is stored as [N, M] row-major, else as [M, N]; `pitch` is its row pitch in elements. entries: elements between
    those of a batch, of which the store's is read.
    """

    name = "sched.matrix"
    matrix = operand_def(PointerType)
    pitch = operand_def(SizeType)
    entries = opt_operand_def(SizeType)
    transposed = opt_prop_def(UnitAttr)
    result = result_def(AnyFloatConstr | base(IntegerType))
    assembly_format = (
        "$matrix `pitch` $pitch (`entries` $entries^ `:` type($entries))? (`transposed` $transposed^)? `:` type($matrix) `,`"
        " type($pitch) `->` type($result) attr-dict"
    )
