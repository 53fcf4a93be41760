"""The epilogue: accumulators through the epilogue graph to global memory, element by element.

A thread holds, of each 64-row block, rows r and r + 8 and of every eight columns the pair 2·(lane % 4), + 1.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, SSAValue

from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.types import PointerType
from louver.isa.convert import Half
from louver.passes.lower.state import Lowering
from louver.ptx.module import Address, Reg

HALVES = (0, 8)
"""Row offsets that a thread holds in a block."""


def store(low: Lowering, op: ops.StoreOp) -> None:
    """Store the warpgroup's rows of the tile; elements outside M × N are dropped."""
    k = low.k
    blocks = len(low.consumer.accumulators)
    warp = k.and_(low.named["warp"], 3)
    lane = k.and_(low.named["tid"], 31)
    first_row = k.add(low.number(op.row), k.mul_lo(low.warpgroup, 64 * blocks))
    first_row = k.add(first_row, k.mad_lo(warp, 16, k.shr(lane, 2)))
    first_column = k.add(low.number(op.column), k.shl(k.and_(lane, 3), 1))
    for block in range(blocks):
        for half, offset in enumerate(HALVES):
            row = k.add(first_row, 64 * block + offset)
            _store_row(low, op, block, half, row, first_column)


def _store_row(low: Lowering, op: ops.StoreOp, block: int, half: int, row: Reg, first_column: Reg) -> None:
    """All columns of one row that this thread holds."""
    k = low.k
    _, tile_n, _ = low.tile
    size = element_type(_element(op)).bytes
    transposed = op.transposed is not None
    pitch = low.sizes["pitch"]
    base = low.register(op.destination)
    major, minor = (first_column, row) if transposed else (row, first_column)
    element = k.add(k.mul_lo(k.widen_u64(major), pitch), k.widen_u64(minor))
    address = k.add(base, k.shl(element, size.bit_length() - 1))
    column_step = k.shl(pitch, size.bit_length() - 1) if transposed else None
    row_inside = k.setp("lt", "u32", row, low.sizes["M"])
    row_values = _vectors(low, op, "m", row, row_inside)
    with k.if_(row_inside):
        for group in range(tile_n // 8):
            here = address
            for pair in (0, 1):
                column = 8 * group + pair
                inside = k.setp("lt", "u32", k.add(first_column, column), low.sizes["N"])
                value = low.consumer.accumulators[block][4 * group + 2 * half + pair]
                column_values = _vectors(low, op, "n", k.add(first_column, column), inside)
                result = _evaluate(low, op, value, row_values | column_values)
                offset = 0 if transposed else column * size
                k.store_global(Address(here, offset), _bits(low, result, _element(op)), guard=inside)
                if column_step is not None and pair == 0:
                    here = k.add(address, column_step)
            if column_step is not None and group + 1 < tile_n // 8:
                address = k.add(address, k.shl(column_step, 3))


def _element(op: ops.StoreOp) -> str:
    destination = op.destination.type
    if not isinstance(destination, PointerType):
        raise TypeError(f"a store's destination is a pointer, got {destination}")
    return destination.element.data


def _vectors(low: Lowering, op: ops.StoreOp, axis: str, index: Reg, inside: Reg) -> dict[SSAValue, Reg]:
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
        loaded[vector.result] = _load_float(low, address, element, inside)
    return loaded


def _load_float(low: Lowering, address: Reg, element: str, inside: Reg) -> Reg:
    """One element as f32."""
    k = low.k
    if element == "f32":
        value = k.mov(0.0, kind="f32")
        k.load_global([value], Address(address), guard=inside)
        return value
    narrow = k.mov(0, kind="b16")
    k.load_global([narrow], Address(address), guard=inside)
    return k.to_f32(_half(element), narrow)


def _evaluate(low: Lowering, op: ops.StoreOp, accumulator: Reg, known: dict[SSAValue, Reg]) -> Reg:
    """Run the region on one accumulator. Values are held as f32, rounded to their type after every operation."""
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
            case arith.TruncFOp():
                values[each.result] = _truncated(low, values[each.input], each)
            case arith.ExtFOp():
                values[each.result] = values[each.input]
            case _:
                raise ValueError(f"an epilogue adds, multiplies and casts, got {each.name}: it has no lowering")
    raise ValueError("an epilogue region ends with sched.yield")


def _truncated(low: Lowering, value: Reg, op: arith.TruncFOp) -> Reg:
    """The last cast is the store's own rounding; any other one rounds and widens again."""
    if all(isinstance(use.operation, ops.YieldOp) for use in op.result.uses):
        return value
    return _rounded(low, value, op.result.type)


def _rounded(low: Lowering, value: Reg, to: Attribute) -> Reg:
    if isinstance(to, Float32Type):
        return value
    name = _half(str(to))
    return low.k.to_f32(name, low.k.from_f32(name, value))


def _bits(low: Lowering, value: Reg, element: str) -> Reg:
    """The value as the bits to store."""
    return value if element == "f32" else low.k.from_f32(_half(element), value)


def _half(element: str) -> Half:
    match element:
        case "f16" | "bf16":
            return element
        case _:
            raise ValueError(f"an epilogue reads and writes f32, f16 and bf16, got {element}")
