"""narrow-operands: multiplies 16-bit elements as they are, where a kernel extends them to f32 for a dot.

A product of two f16 or of two bf16 is exact in f32, so the sums are the same, up to the order and the rounding of additions. Tensor
cores multiply 16-bit elements at twice the rate of f32, and keep 2 of 4 of them, but 1 of 2 of f32.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import BFloat16Type, Float16Type, Float32Type, ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from louver.compile.rewrite.insert import insert_before
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DotOp, FuncOp, TransOp
from louver.ir.tile.types import tensor_of


def narrow_operands(module: ModuleOp) -> None:
    """Rewrite in place. Both operands of a dot are extended from one type, and may be transposed behind that."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        dots = [op for op in function.body.walk() if isinstance(op, DotOp)]
        narrowed = [op for op in dots if _narrow(op)]
        if narrowed:
            remove_dead(function)


def _narrow(op: DotOp) -> bool:
    elements = {tensor_of(each).element_type for each in (_before(op.a), _before(op.b))}
    wide = {tensor_of(each).element_type for each in (op.a, op.b, op.c)}
    if (
        len(elements) != 1
        or not isinstance(next(iter(elements)), Float16Type | BFloat16Type)
        or wide != {Float32Type()}
    ):
        return False
    new = DotOp(_without_extension(op.a, op), _without_extension(op.b, op), op.c)
    new.d.name_hint = op.d.name_hint
    Rewriter.replace_op(op, [], [insert_before(op, new)])
    return True


def _before(value: SSAValue) -> SSAValue:
    """The tile that is extended, and may be transposed, to make an operand."""
    while isinstance(value.owner, arith.ExtFOp | TransOp):
        value = value.owner.operands[0]
    return value


def _without_extension(value: SSAValue, op: DotOp) -> SSAValue:
    match value.owner:
        case arith.ExtFOp(input=inner):
            return inner
        case TransOp() as turned:
            return insert_before(op, TransOp(_without_extension(turned.src, op), list(turned.order.get_values())))
        case _:
            return value
