"""The operations of MLIR's `llvm` dialect that Triton prints."""

from __future__ import annotations

from xdsl.dialects.builtin import i1
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def


@irdl_op_definition
class AssumeOp(IRDLOperation):
    """The condition holds whenever it is reached."""

    name = "llvm.intr.assume"
    cond = operand_def(i1)
    assembly_format = "$cond attr-dict `:` type($cond)"


LLVM = Dialect("llvm", [AssumeOp])
"""The dialect as far as kernels use it."""
