"""Takes the values of arguments from the call for which a kernel is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from xdsl.dialects.arith import ConstantOp
from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir.tile import FuncOp


def compile_in(module: ModuleOp, values: Mapping[str, int]) -> None:
    """Replace uses of integer arguments by constants of their types, in place. The arguments stay, without uses."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)] if values else []:
        for argument, name in function.argument_names.items():
            if name in values and argument.uses:
                constant = ConstantOp(IntegerAttr(values[name], cast("IntegerType", argument.type)))
                constant.location = function.location
                Rewriter.insert_op(constant, InsertPoint.at_start(function.body.block))
                argument.replace_all_uses_with(constant.result)
