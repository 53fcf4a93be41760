"""Computes sums and products of integers in the width to which they are truncated."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer
from louver.ir.arith import ExtSIOp, TruncIOp
from louver.ir.tile import FuncOp

_EXACT = arith.AddiOp | arith.SubiOp | arith.MuliOp
"""Operations whose low bits depend only on the low bits of their operands."""


def narrow_sums(function: FuncOp) -> None:
    """Rewrite in place: a `trunci` of sums and products of constants and extended integers becomes narrow sums and
    products.
    """
    for op in [op for op in function.body.walk() if isinstance(op, TruncIOp)]:
        width = op.result.type
        if isinstance(width, IntegerType) and _is_narrow(op.input, width):
            Rewriter.replace_op(op, [], [_narrowed(op.input, width, op)])


def _is_narrow(value: SSAValue, width: IntegerType) -> bool:
    if constant_integer(value) is not None:
        return True
    match value.owner:
        case ExtSIOp(input=inner):
            return inner.type == width
        case arith.AddiOp(lhs=one, rhs=other) | arith.SubiOp(lhs=one, rhs=other) | arith.MuliOp(lhs=one, rhs=other):
            return _is_narrow(one, width) and _is_narrow(other, width)
        case _:
            return False


def _narrowed(value: SSAValue, width: IntegerType, before: Operation) -> SSAValue:
    constant, op = constant_integer(value), value.owner
    if constant is not None:
        low = constant & (1 << width.width.data) - 1
        signed = low - (1 << width.width.data) if low >> width.width.data - 1 else low
        made: Operation = arith.ConstantOp(IntegerAttr(signed, width))
    elif isinstance(op, ExtSIOp):
        return op.input
    else:
        assert isinstance(op, _EXACT)
        made = type(op)(_narrowed(op.lhs, width, before), _narrowed(op.rhs, width, before))
    made.location = before.location
    Rewriter.insert_op(made, InsertPoint.before(before))
    made.results[0].name_hint = value.name_hint
    return made.results[0]
