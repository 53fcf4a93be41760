"""The operations of MLIR's `llvm` dialect that Triton prints."""

from __future__ import annotations

from xdsl.dialects.builtin import i1
from xdsl.ir import Dialect
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def


@irdl_op_definition
class AssumeOp(IRDLOperation):
    """Assume that the condition is true."""

    name = "llvm.intr.assume"
    cond = operand_def(i1)
    assembly_format = "$cond attr-dict `:` type($cond)"


LLVM = Dialect("llvm", [AssumeOp])
"""The part of the dialect that kernels use."""
