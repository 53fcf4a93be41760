"""Pointer arithmetic: ranges of integers, additions to pointers, addresses, and casts of pointers."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.arith import signlessIntegerLike
from xdsl.dialects.builtin import I32, IntegerAttr, TensorType, i32, i64
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

from louver.ir.tile.compute import Converting
from louver.ir.tile.types import PointerType, as_tensor, element_of, tensor_like


@irdl_op_definition
class MakeRangeOp(IRDLOperation):
    """The integers from `start` to `end` - 1 as a vector of i32."""

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
    """Add an offset in elements to a pointer, or to each pointer of a tensor."""

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
        _verify_pointers("tt.addptr moves", self.ptr.type)
        if (pointer and pointer.get_shape()) != (offset and offset.get_shape()):
            raise VerifyException(f"pointers and offsets have one shape, got {self.ptr.type} and {self.offset.type}")


@irdl_op_definition
class PtrToIntOp(Converting):
    """The address of a pointer, or of each pointer of a tensor, in bytes."""

    name = "tt.ptr_to_int"
    src = operand_def()
    result = result_def(signlessIntegerLike)

    def verify_(self) -> None:
        _verify_pointers(f"{self.name} reads", self.src.type)
        tensor = as_tensor(self.src.type)
        wanted = i64 if tensor is None else tensor_like(tensor, i64)
        if self.result.type != wanted:
            raise VerifyException(f"{self.name} gives {wanted}, got {self.result.type}")


@irdl_op_definition
class PointerCastOp(Converting):
    """Cast a pointer, or a tensor of pointers, to another element type. Casts of numbers become `arith.bitcast`."""

    name = "tt.bitcast"
    src = operand_def()
    result = result_def()

    def verify_(self) -> None:
        for type_ in (self.src.type, self.result.type):
            _verify_pointers(f"{self.name} is of", type_)


def _verify_pointers(what: str, type_: Attribute) -> None:
    element = element_of(type_)
    if not isinstance(element, PointerType) or isinstance(element.pointee, TensorType):
        raise VerifyException(f"{what} pointers to elements, got {type_}")
