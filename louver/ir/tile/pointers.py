"""Pointer arithmetic: ranges of integers, and pointers moved by integers."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.arith import signlessIntegerLike
from xdsl.dialects.builtin import I32, IntegerAttr, TensorType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    VarConstraint,
    irdl_op_definition,
    operand_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.types import PointerType, as_tensor


@irdl_op_definition
class MakeRangeOp(IRDLOperation):
    """The integers from `start` to `end`, which is not one of them, as a vector of i32."""

    name = "tt.make_range"
    start = prop_def(IntegerAttr[I32])
    end = prop_def(IntegerAttr[I32])
    result = result_def(TensorType)
    irdl_options = (ParsePropInAttrDict(),)
    traits = traits_def(Pure())
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, start: int, end: int) -> None:
        super().__init__(
            properties={"start": IntegerAttr(start, 32), "end": IntegerAttr(end, 32)},
            result_types=[TensorType(i32, [end - start])],
        )

    def verify_(self) -> None:
        start, end = self.start.value.data, self.end.value.data
        if start >= end:
            raise VerifyException(f"a range holds at least one integer, got {start} to {end}")
        if self.result.type != TensorType(i32, [end - start], self.result.type.encoding):
            raise VerifyException(f"{self.name} gives {TensorType(i32, [end - start])}, got {self.result.type}")


@irdl_op_definition
class AddPtrOp(IRDLOperation):
    """A pointer, or each pointer of a tensor, moved on by so many elements."""

    name = "tt.addptr"
    T: ClassVar = VarConstraint("T", AnyAttr())
    ptr = operand_def(T)
    offset = operand_def(signlessIntegerLike)
    result = result_def(T)
    traits = traits_def(Pure())
    assembly_format = "$ptr `,` $offset attr-dict `:` type($result) `,` type($offset)"

    def __init__(self, ptr: SSAValue, offset: SSAValue) -> None:
        super().__init__(operands=[ptr, offset], result_types=[ptr.type])

    def verify_(self) -> None:
        pointer, offset = as_tensor(self.ptr.type), as_tensor(self.offset.type)
        element: Attribute = self.ptr.type if pointer is None else pointer.element_type
        if not isinstance(element, PointerType) or isinstance(element.pointee, TensorType):
            raise VerifyException(f"tt.addptr moves pointers to elements, got {self.ptr.type}")
        if (pointer and pointer.get_shape()) != (offset and offset.get_shape()):
            raise VerifyException(f"pointers and offsets have one shape, got {self.ptr.type} and {self.offset.type}")
