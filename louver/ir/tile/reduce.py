"""Reductions and scans along an axis, in the generic form of Triton. A region combines two elements."""

from __future__ import annotations

from xdsl.dialects.builtin import I32, BoolAttr, IntegerAttr
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import HasParent, IsTerminator, Pure, RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.encodings import SliceAttr
from louver.ir.tile.types import register_encoding, tensor_of


class CombiningOp(IRDLOperation):
    """Combines elements along `axis`.

    The arguments of the region are one element of each operand, then a second one of each.
    """

    srcs = var_operand_def()
    axis = prop_def(IntegerAttr[I32])
    result = var_result_def()
    combine = region_def("single_block")
    traits = traits_def(RecursiveMemoryEffect())

    def verify_(self) -> None:
        for source in self.srcs:
            rank = tensor_of(source).get_num_dims()
            if not 0 <= self.axis.value.data < rank:
                raise VerifyException(f"axis must be 0 to {rank - 1}, got {self.axis.value.data}")


@irdl_op_definition
class ReduceOp(CombiningOp):
    """Combine all elements along the axis to one."""

    name = "tt.reduce"

    def verify_(self) -> None:
        super().verify_()
        axis = self.axis.value.data
        for source, result in zip(self.srcs, self.result, strict=True):
            place, found = register_encoding(source.type), register_encoding(result.type)
            if place is None or found is None or found == SliceAttr.of(axis, place):
                continue
            if not any(step[axis] for step in place.layout(tensor_of(source).get_shape()).warp):
                raise VerifyException(
                    f"the result of a reduction in each warp is encoded as a slice of its operand, {place}, got {found}"
                )


@irdl_op_definition
class ScanOp(CombiningOp):
    """Combine each element with all elements before it along the axis.

    With `reverse`, combine it with all elements after it.
    """

    name = "tt.scan"
    reverse = prop_def(BoolAttr)


class _CombinedOp(IRDLOperation):
    """Ends a region with the combined values."""

    values = var_operand_def()
    assembly_format = "$values attr-dict `:` type($values)"


@irdl_op_definition
class ReduceReturnOp(_CombinedOp):
    """Ends a reduction's region."""

    name = "tt.reduce.return"
    traits = traits_def(HasParent(ReduceOp), IsTerminator(), Pure())


@irdl_op_definition
class ScanReturnOp(_CombinedOp):
    """Ends a scan's region."""

    name = "tt.scan.return"
    traits = traits_def(HasParent(ScanOp), IsTerminator(), Pure())
