"""The epilogue graph as schedule IR: one accumulator in, the value to store out."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat, BFloat16Type, Float16Type, Float32Type, StringAttr
from xdsl.ir import SSAValue

from louver.ir.sched import ops
from louver.passes.product import Accumulator, Add, Cast, Expression, LoadVector, Multiply, walk

FLOATS: dict[str, AnyFloat] = {"f32": Float32Type(), "f16": Float16Type(), "bf16": BFloat16Type()}
"""Element types that an epilogue computes in."""


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
                operands=[parameters[argument]], properties={"axis": StringAttr(axis)}, result_types=[_float(element)]
            )
            return op.result
        case Add(left, right):
            return arith.AddfOp(
                build_epilogue(left, accumulator, parameters), build_epilogue(right, accumulator, parameters)
            ).result
        case Multiply(left, right):
            return arith.MulfOp(
                build_epilogue(left, accumulator, parameters), build_epilogue(right, accumulator, parameters)
            ).result
        case Cast(operand, to):
            return _cast(build_epilogue(operand, accumulator, parameters), _float(to))


def _float(element: str) -> AnyFloat:
    if element not in FLOATS:
        raise ValueError(f"an epilogue computes in {', '.join(FLOATS)}, got {element}")
    return FLOATS[element]


def _cast(value: SSAValue, to: AnyFloat) -> SSAValue:
    source = value.type
    if source == to:
        return value
    if not isinstance(source, AnyFloat):
        raise ValueError(f"an epilogue casts floating-point values, got {source}")
    if to.bitwidth > source.bitwidth:
        return arith.ExtFOp(value, to).result
    if to.bitwidth == source.bitwidth:
        wide = arith.ExtFOp(value, FLOATS["f32"]).result
        return arith.TruncFOp(wide, to).result
    return arith.TruncFOp(value, to).result
