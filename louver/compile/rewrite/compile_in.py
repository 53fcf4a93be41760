"""Takes the values of arguments from the call for which a kernel is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType, ModuleOp, i32
from xdsl.ir import Operation
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer
from louver.compile.rewrite.insert import integer
from louver.ir.tile import FuncOp

_COMPUTED: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: lambda one, other: one + other,
    arith.SubiOp: lambda one, other: one - other,
    arith.MuliOp: lambda one, other: one * other,
    arith.DivSIOp: lambda one, other: one // other,
}
"""What is computed of constants. A quotient is taken of numbers that are not negative."""


def compile_in(module: ModuleOp, values: Mapping[str, int]) -> None:
    """Replace uses of integer arguments by constants of their types, in place. The arguments stay, without uses. What is
    computed of these constants is a constant, too: 0 columns are 0 steps.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)] if values else []:
        for argument, name in function.argument_names.items():
            if name in values and argument.uses:
                constant = arith.ConstantOp(IntegerAttr(values[name], cast("IntegerType", argument.type)))
                constant.location = function.location
                Rewriter.insert_op(constant, InsertPoint.at_start(function.body.block))
                argument.replace_all_uses_with(constant.result)
        for op in list(function.body.walk()):
            _fold(op)


def _fold(op: Operation) -> None:
    """Replace an operation on constants by its result, and a sum with 0 by the other operand."""
    compute = _COMPUTED.get(type(op))
    if compute is None or op.results[0].type != i32:
        return
    one, other = map(constant_integer, op.operands)
    if other == 0 and isinstance(op, arith.AddiOp | arith.SubiOp):
        Rewriter.replace_op(op, [], [op.operands[0]])
    elif one == 0 and isinstance(op, arith.AddiOp):
        Rewriter.replace_op(op, [], [op.operands[1]])
    elif one is not None and other is not None and (not isinstance(op, arith.DivSIOp) or one >= 0 < other):
        result = compute(one, other)
        if -(2**31) <= result < 2**31:
            Rewriter.replace_op(op, [], [integer(op, result)])
