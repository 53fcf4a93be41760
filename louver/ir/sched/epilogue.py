"""Operations in the region of a store that read arrays of an epilogue.

The region has one block argument, the sum. For a gated product it has two: the sums of gate and up for one element.
"""

from __future__ import annotations

from xdsl.dialects.builtin import AnyFloatConstr, IntegerType, StringAttr, UnitAttr
from xdsl.irdl import (
    IRDLOperation,
    base,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
)
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched.types import PointerType, SizeType


@irdl_op_definition
class VectorOp(IRDLOperation):
    """The element of a vector for the accumulator's row (`axis` "m") or column ("n"); 0 outside."""

    name = "sched.vector"
    vector = operand_def(PointerType)
    axis = prop_def(StringAttr)
    result = result_def(AnyFloatConstr | base(IntegerType))
    assembly_format = "$vector `along` $axis `:` type($vector) `->` type($result) attr-dict"

    def verify_(self) -> None:
        if self.axis.data not in ("m", "n"):
            raise VerifyException(f'the axis is "m" or "n", got {self.axis.data!r}')


@irdl_op_definition
class ScalarOp(IRDLOperation):
    """The element to which a pointer points."""

    name = "sched.scalar"
    pointer = operand_def(PointerType)
    result = result_def(AnyFloatConstr | base(IntegerType))
    assembly_format = "$pointer `:` type($pointer) `->` type($result) attr-dict"


@irdl_op_definition
class MatrixOp(IRDLOperation):
    """The element of an array with the output's sizes, at the place of the output element; 0 outside.

    transposed: it is stored as [N, M] row-major, else as [M, N].
    pitch: its row pitch in elements.
    entries: elements between the entries of a batch. The entry of the store is read.
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
