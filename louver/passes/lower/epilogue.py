"""The epilogue graph of a store, on one accumulator at a time."""

from __future__ import annotations

from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, SSAValue

from louver.formats.dtypes import element_type
from louver.ir.arith import SIToFPOp
from louver.ir.sched import ops
from louver.ir.sched.types import PointerType
from louver.passes.lower.convert import half, load_element, stored_bits
from louver.passes.lower.state import Lowering
from louver.ptx.module import Reg

Epilogue: TypeAlias = ops.StoreOp | ops.BulkStoreOp
"""Operations that hold an epilogue region."""


def vectors(low: Lowering, op: Epilogue, axis: str, index: Reg, inside: Reg) -> dict[SSAValue, Reg]:
    """The epilogue's vectors along `axis`, loaded at `index`; 0 outside."""
    k = low.k
    loaded: dict[SSAValue, Reg] = {}
    for vector in op.body.block.ops:
        if not isinstance(vector, ops.VectorOp) or vector.axis.data != axis:
            continue
        pointer = vector.vector.type
        if not isinstance(pointer, PointerType):
            raise TypeError(f"a vector is read through a pointer, got {pointer}")
        element = pointer.element.data
        address = k.mad_wide(index, element_type(element).bytes, low.register(vector.vector))
        loaded[vector.result] = load_element(low, address, element, inside)
    return loaded


def evaluate(low: Lowering, op: Epilogue, accumulator: Reg, known: dict[SSAValue, Reg]) -> Reg:
    """Run the region on one accumulator.

    Floating-point values are held as f32, rounded to their type after every operation; integers in 32 bits.
    """
    values = {op.body.block.args[0]: accumulator, **known}
    for each in op.body.block.ops:
        match each:
            case ops.VectorOp():
                pass
            case ops.YieldOp():
                return values[each.value]
            case arith.AddfOp():
                values[each.result] = _rounded(low, low.k.add_f32(values[each.lhs], values[each.rhs]), each.result.type)
            case arith.MulfOp():
                values[each.result] = _rounded(low, low.k.mul_f32(values[each.lhs], values[each.rhs]), each.result.type)
            case arith.AddiOp():
                values[each.result] = low.k.add(values[each.lhs], values[each.rhs])
            case arith.TruncFOp() | SIToFPOp():
                values[each.result] = _converted(low, values[each.input], each)
            case arith.ExtFOp():
                values[each.result] = values[each.input]
            case _:
                raise ValueError(f"an epilogue adds, multiplies and casts, got {each.name}: it has no lowering")
    raise ValueError("an epilogue region ends with sched.yield")


def _converted(low: Lowering, value: Reg, op: arith.TruncFOp | SIToFPOp) -> Reg:
    """The last cast is the store's own rounding; any other one rounds and widens again."""
    if all(isinstance(use.operation, ops.YieldOp) for use in op.result.uses):
        return value
    return _rounded(low, value, op.result.type)


def _rounded(low: Lowering, value: Reg, to: Attribute) -> Reg:
    if isinstance(to, Float32Type):
        return stored_bits(low, value, "f32")
    name = half(str(to))
    return low.k.to_f32(name, stored_bits(low, value, name))
