"""Elements that change threads, through shared memory: one thread that has an element stores it, those that want it load it."""

from __future__ import annotations

from xdsl.ir import Operation

from louver.ir.tile import ConvertLayoutOp
from louver.ir.tile.layout import Layout
from louver.isa.instruction import REGISTER_BITS, RegType
from louver.isa.memory import Load, Store
from louver.passes.lower_tiles.state import Lowering, Registers, flat_offset
from louver.ptx.module import Address, Reg


def lower_conversion(low: Lowering, op: ConvertLayoutOp, limit: int) -> Registers:
    """The same tile in other registers; nothing moves where each thread has its elements already."""
    source, result = low.layout(op.src), low.layout(op.result)
    registers = low.values[op.src]
    if source.thread == result.thread:
        return tuple(registers[source.register_of(place)] for place in result.registers)
    return _through_shared(low, op, registers, (source, result), limit)


def from_owners(low: Lowering, op: Operation, registers: Registers, layout: Layout, limit: int) -> Registers:
    """The same tile in all threads that have it, from those that own its elements."""
    return _through_shared(low, op, registers, (layout, layout), limit)


def _through_shared(
    low: Lowering, op: Operation, registers: Registers, layouts: tuple[Layout, Layout], limit: int
) -> Registers:
    source, result = layouts
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else list(registers)
    kind = stored[0].type
    size = REGISTER_BITS[kind] // 8
    low.reserve(source.size * size, op, limit)
    base = place(low, low.flat_origin(source), size)
    owner = low.owner(source)
    for register, at in zip(stored, source.registers, strict=True):
        low.k.emit(Store("shared", kind), Address(base, flat_offset(at, source) * size), register, guard=owner)
    low.barrier()
    base = place(low, low.flat_origin(result), size)
    found = tuple(load_shared(low, kind, Address(base, flat_offset(at, result) * size)) for at in result.registers)
    # The next exchange uses the same memory.
    low.barrier()
    return tuple(as_truth(low, each) for each in found) if truths else found


def place(low: Lowering, origin: Reg | None, size: int) -> Reg:
    """The thread's address in shared memory, its distance in elements of so many bytes."""
    return low.shared if origin is None else low.k.mad_lo(origin, size, low.shared)


def load_shared(low: Lowering, kind: RegType, address: Address) -> Reg:
    """One register from shared memory."""
    result = low.k.reg(kind)
    low.k.emit(Load("shared", kind), result, address)
    return result


def as_number(low: Lowering, truth: Reg) -> Reg:
    """A predicate as 1 or 0."""
    return low.k.selp(low.constant(1, "b32"), low.constant(0, "b32"), truth)


def as_truth(low: Lowering, number: Reg) -> Reg:
    """1 or 0 as a predicate."""
    return low.k.setp("ne", "u32", number, 0)
