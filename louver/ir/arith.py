"""MLIR's `arith` dialect. Conversions of integers, comparisons and selects accept tensors, unlike those of xDSL."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects import arith
from xdsl.dialects.arith import floatingPointLike, signlessIntegerLike
from xdsl.dialects.builtin import IntegerType
from xdsl.ir import Attribute, Dialect, Operation, SSAValue
from xdsl.irdl import IRDLOperation, VarConstraint, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.comparisons import CmpfOp, CmpiOp, SelectOp
from louver.ir.tile.types import as_tensor, element_of


class _Conversion(IRDLOperation):
    """A conversion of a scalar, or of every element of a tensor."""

    traits = traits_def(Pure())
    assembly_format = "$input attr-dict `:` type($input) `to` type($result)"

    def __init__(self, value: SSAValue, to: Attribute) -> None:
        super().__init__(operands=[value], result_types=[to])

    def verify_(self) -> None:
        source, result = self.operands[0].type, self.results[0].type
        shapes = [tensor and tensor.get_shape() for tensor in map(as_tensor, (source, result))]
        if shapes[0] != shapes[1]:
            raise VerifyException(f"a conversion keeps the shape, got {source} to {result}")


class _ToFloating(_Conversion):
    input = operand_def(signlessIntegerLike)
    result = result_def(floatingPointLike)


class _ToIntegers(_Conversion):
    input = operand_def(floatingPointLike)
    result = result_def(signlessIntegerLike)


@irdl_op_definition
class SIToFPOp(_ToFloating):
    """Convert signed integers to floating-point numbers, to nearest even."""

    name = "arith.sitofp"


@irdl_op_definition
class FPToSIOp(_ToIntegers):
    """Convert floating-point numbers to signed integers, towards zero.

    A number out of range is undefined in MLIR. Here it saturates, and NaN becomes 0.
    """

    name = "arith.fptosi"


@irdl_op_definition
class UIToFPOp(_ToFloating):
    """Convert unsigned integers to floating-point numbers, to nearest even."""

    name = "arith.uitofp"


@irdl_op_definition
class FPToUIOp(_ToIntegers):
    """Convert floating-point numbers to unsigned integers, in the same way as `FPToSIOp`."""

    name = "arith.fptoui"


@irdl_op_definition
class RemFOp(IRDLOperation):
    """The remainder of a floating-point division, with the sign of the dividend."""

    name = "arith.remf"
    T: ClassVar = VarConstraint("T", floatingPointLike)
    lhs = operand_def(T)
    rhs = operand_def(T)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$lhs `,` $rhs attr-dict `:` type($result)"

    def __init__(self, lhs: SSAValue, rhs: SSAValue) -> None:
        super().__init__(operands=[lhs, rhs], result_types=[lhs.type])


class _Resize(_Conversion):
    input = operand_def(signlessIntegerLike)
    result = result_def(signlessIntegerLike)
    GROWS: ClassVar[bool] = True

    def verify_(self) -> None:
        super().verify_()
        if (_bits(self.result) > _bits(self.input)) != self.GROWS:
            more = "more" if self.GROWS else "fewer"
            raise VerifyException(
                f"{self.name} gives integers of {more} bits, got {self.input.type} to {self.result.type}"
            )


@irdl_op_definition
class ExtSIOp(_Resize):
    """Extend signed integers to more bits: a scalar, or every element of a tensor."""

    name = "arith.extsi"


@irdl_op_definition
class ExtUIOp(_Resize):
    """Extend unsigned integers to more bits: a scalar, or every element of a tensor."""

    name = "arith.extui"


@irdl_op_definition
class TruncIOp(_Resize):
    """Truncate integers to their low bits: a scalar, or every element of a tensor."""

    name = "arith.trunci"
    GROWS: ClassVar[bool] = False


def _bits(value: SSAValue) -> int:
    element = element_of(value.type)
    if not isinstance(element, IntegerType):
        raise VerifyException(f"expected integers of a stated width, got {value.type}")
    return element.bitwidth


DIVISIONS = (
    *(arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp),
    *(arith.FloorDivSIOp, arith.CeilDivSIOp, arith.CeilDivUIOp),
)
"""Operations whose divisor must not be 0."""


_OURS: dict[type[Operation], type[Operation]] = {
    arith.SIToFPOp: SIToFPOp,
    arith.FPToSIOp: FPToSIOp,
    arith.UIToFPOp: UIToFPOp,
    arith.FPToUIOp: FPToUIOp,
    arith.ExtSIOp: ExtSIOp,
    arith.ExtUIOp: ExtUIOp,
    arith.TruncIOp: TruncIOp,
    arith.CmpiOp: CmpiOp,
    arith.CmpfOp: CmpfOp,
    arith.SelectOp: SelectOp,
}

ARITH = Dialect(
    "arith",
    [*(_OURS.get(op, op) for op in arith.Arith.operations), RemFOp],
    list(arith.Arith.attributes),
)
"""The dialect in the form that Louver reads."""
