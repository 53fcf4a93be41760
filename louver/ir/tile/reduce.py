"""Reductions along an axis, as Triton prints them: a generic operation with the combination as its region."""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr
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

from louver.ir.tile.types import tensor_of


@irdl_op_definition
class ReduceOp(IRDLOperation):
    """Combine all elements along `axis`, by the region's two halves of arguments, to one."""

    name = "tt.reduce"
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
class ReduceReturnOp(IRDLOperation):
    """Ends a reduction's region with the combined values."""

    name = "tt.reduce.return"
    values = var_operand_def()
    traits = traits_def(HasParent(ReduceOp), IsTerminator(), Pure())
    assembly_format = "$values attr-dict `:` type($values)"
