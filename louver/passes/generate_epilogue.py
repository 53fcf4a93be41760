"""The epilogue graph as schedule IR: one accumulator in, the value to store out."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, IntegerType, StringAttr, f32
from xdsl.ir import Attribute, SSAValue

from louver.ir.arith import SIToFPOp
from louver.ir.sched import ops
from louver.ir.tile.elements import element_attribute
from louver.passes.product import Accumulator, Add, Cast, Expression, LoadVector, Multiply, walk

COMPUTED = ("f32", "f16", "bf16", "s32")
"""Element types that an epilogue computes in; it may store others."""


def epilogue_vectors(expression: Expression) -> tuple[LoadVector, ...]:
    """The vectors that the epilogue reads, each once, in the order of first use."""
    return tuple(dict.fromkeys(node for node in walk(expression) if isinstance(node, LoadVector)))


def build_epilogue(expression: Expression, accumulator: SSAValue, parameters: Mapping[str, SSAValue]) -> SSAValue:
    """Emit the operations of `expression` at the builder's insertion point and return the value to store."""
    match expression:
        case Accumulator():
            return accumulator
        case LoadVector(argument, element, axis):
            op = ops.VectorOp(
                operands=[parameters[argument]],
                properties={"axis": StringAttr(axis)},
                result_types=[_computed(element)],
            )
            return op.result
        case Add(left, right):
            one, other = (build_epilogue(side, accumulator, parameters) for side in (left, right))
            add = arith.AddiOp if isinstance(one.type, IntegerType) else arith.AddfOp
            return add(one, other).result
        case Multiply(left, right):
            return arith.MulfOp(
                build_epilogue(left, accumulator, parameters), build_epilogue(right, accumulator, parameters)
            ).result
        case Cast(operand, to):
            return _cast(build_epilogue(operand, accumulator, parameters), element_attribute(to))


def _computed(element: str) -> Attribute:
    if element not in COMPUTED:
        raise ValueError(f"an epilogue computes in {', '.join(COMPUTED)}, got {element}")
    return element_attribute(element)


def _cast(value: SSAValue, to: Attribute) -> SSAValue:
    source = value.type
    if source == to:
        return value
    if not isinstance(to, AnyFloat) or not isinstance(source, AnyFloat | IntegerType):
        raise ValueError(f"an epilogue casts to floating-point types, got {source} to {to}")
    if isinstance(source, IntegerType):
        return SIToFPOp(value, to).result
    if to.bitwidth > source.bitwidth:
        return arith.ExtFOp(value, to).result
    if to.bitwidth == source.bitwidth:
        wide = arith.ExtFOp(value, f32).result
        return arith.TruncFOp(wide, to).result
    return arith.TruncFOp(value, to).result
