"""MLIR's `arith` dialect, with conversions of integers on tensors: xDSL's take scalars only."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.ir import Attribute, Dialect, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.types import as_tensor


@irdl_op_definition
class SIToFPOp(IRDLOperation):
    """Signed integers as floating-point numbers, to nearest even: of a scalar, or of every element of a tensor."""

    name = "arith.sitofp"
    input = operand_def(signlessIntegerLike)
    result = result_def(floatingPointLike)
    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"

    def __init__(self, value: SSAValue, to: Attribute) -> None:
        super().__init__(operands=[value], result_types=[to])

    def verify_(self) -> None:
        source, result = as_tensor(self.input.type), as_tensor(self.result.type)
        shapes = [None if tensor is None else tensor.get_shape() for tensor in (source, result)]
        if shapes[0] != shapes[1]:
            raise VerifyException(f"a conversion keeps the shape, got {self.input.type} to {self.result.type}")


ARITH = Dialect(
    "arith",
    [SIToFPOp if op is arith.SIToFPOp else op for op in arith.Arith.operations],
    list(arith.Arith.attributes),
)
"""The dialect as Louver reads it."""
