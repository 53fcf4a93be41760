"""Lowers operations that rename or repeat elements. No element moves between threads."""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, FloatAttr, IntegerAttr
from xdsl.ir import Operation

from louver.compile.lower.tiles.numbers import from_f32
from louver.compile.lower.tiles.state import Lowering, Registers, register_class
from louver.compile.lower.tiles.sums import plus_constant
from louver.compile.plan.encode.anchors import is_tile
from louver.formats.dtypes import element_type, raw_bits
from louver.ir.refusal import unsupported
from louver.ir.tile import (
    BroadcastOp,
    ExpandDimsOp,
    JoinOp,
    MakeRangeOp,
    ReshapeOp,
    SplatOp,
    SplitOp,
    TransOp,
    element_name,
)
from louver.ir.tile.layout import Layout, Vector
from louver.ir.tile.types import element_of, first_of, is_splat, tensor_of
from louver.isa.instruction import RegType
from louver.ptx.module import Reg


def lower_constant(low: Lowering, op: arith.ConstantOp) -> Registers:
    """The number in each register."""
    match op.value:
        case IntegerAttr() | FloatAttr():
            number: int | float = op.value.value.data
        case DenseIntOrFPElementsAttr() if is_splat(op.value):
            number = first_of(op.value)
        case _:
            raise unsupported(
                "a constant tile must have one number for all elements", op, "compute it from tl.arange, or load it"
            )
    element = element_of(op.result.type)
    kind = register_class(element, op)
    register = _constant(low, number, kind) if kind != "b16" else _narrow(low, op, float(number))
    return (register,) * (len(low.layout(op.result).registers) if is_tile(op.result) else 1)


def _constant(low: Lowering, number: float, kind: RegType) -> Reg:
    return low.constant(float(number) if kind == "f32" else int(number), kind)


def _narrow(low: Lowering, op: arith.ConstantOp, number: float) -> Reg:
    """A floating-point constant of up to 16 bits. The elements of the attribute have this type already."""
    type_ = element_of(op.result.type)
    element = element_type(element_name(type_))
    if element.unused:
        return low.constant(int(raw_bits(np.array(number, element.numpy))), "b16")
    return from_f32(low, low.constant(number, "f32"), type_)


def lower_range(low: Lowering, op: MakeRangeOp) -> Registers:
    """The integers from `start` on."""
    layout, start = low.layout(op.result), op.start.value.data
    origin = low.origin(layout, 0)
    numbers = [start + place[0] for place in layout.registers]
    if origin is None:
        return tuple(low.constant(number, "b32") for number in numbers)
    return tuple(plus_constant(low, origin, number, "b32", {}) for number in numbers)


def lower_splat(low: Lowering, op: SplatOp) -> Registers:
    """The scalar in each register."""
    return low.values[op.src] * len(low.layout(op.result).registers)


def lower_move(low: Lowering, op: ExpandDimsOp | BroadcastOp | TransOp | ReshapeOp) -> Registers:
    """Each element stays in its thread, and gets another place in the tile."""
    source, result = low.layout(op.src), low.layout(op.result)
    registers = low.values[op.src]
    return tuple(registers[source.register_of(_source_place(op, place, source))] for place in result.registers)


def _source_place(op: Operation, place: Vector, source: Layout) -> Vector:
    match op:
        case ExpandDimsOp():
            axis = op.axis.value.data
            return place[:axis] + place[axis + 1 :]
        case BroadcastOp():
            return tuple(0 if size == 1 else at for at, size in zip(place, source.shape, strict=True))
        case TransOp():
            order = list(op.order.get_values())
            return tuple(place[order.index(dimension)] for dimension in range(len(order)))
        case _:
            assert isinstance(op, ReshapeOp)
            flat = 0
            for at, size in zip(place, tensor_of(op.result).get_shape(), strict=True):
                flat = flat * size + at
            found: list[int] = []
            for size in reversed(source.shape):
                flat, rest = divmod(flat, size)
                found.append(rest)
            return tuple(reversed(found))


def lower_join(low: Lowering, op: JoinOp) -> Registers:
    """The elements of both operands. The last index selects the operand."""
    source, result = low.layout(op.lhs), low.layout(op.result)
    parts = [low.values[each] for each in op.operands]
    return tuple(parts[place[-1]][source.register_of(place[:-1])] for place in result.registers)


def lower_split(low: Lowering, op: SplitOp) -> None:
    """The elements with last index 0, and the elements with last index 1."""
    source, result = low.layout(op.src), low.layout(op.first)
    registers = low.values[op.src]
    for part, half in enumerate(op.results):
        low.values[half] = tuple(registers[source.register_of((*place, part))] for place in result.registers)
