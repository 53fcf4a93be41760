"""Elements that change threads, through shared memory: one thread that has an element stores it, those that want it load it."""

from __future__ import annotations

from math import prod

from xdsl.ir import Operation

from louver.ir.tile import ConvertLayoutOp, GatherOp
from louver.ir.tile.layout import Layout, Vector
from louver.isa.convert import ConvertInteger
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


def lower_gather(low: Lowering, op: GatherOp, limit: int) -> Registers:
    """Elements that all threads can reach, each loaded from where its index says."""
    source, result, axis = low.layout(op.src), low.layout(op.result), op.axis.value.data
    pitch = prod(source.shape[axis + 1 :])
    size = _put(low, op, low.values[op.src], source, limit)

    def beside(step: Vector) -> int:
        """How far on a step is without what it takes along the axis."""
        return flat_offset((*step[:axis], 0, *step[axis + 1 :]), source)

    base = place(low, low.combined([beside(step) for step in result.thread]), size)
    found: list[Reg] = []
    for index, at in zip(low.values[op.indices], result.registers, strict=True):
        narrow = low.emit(ConvertInteger("u32", "u64"), index) if index.type == "b64" else index
        address = low.k.mad_lo(narrow, pitch * size, base)
        found.append(_taken(low, low.values[op.src][0].type, Address(address, beside(at) * size)))
    low.barrier()
    return tuple(found)


def _through_shared(
    low: Lowering, op: Operation, registers: Registers, layouts: tuple[Layout, Layout], limit: int
) -> Registers:
    source, result = layouts
    size = _put(low, op, registers, source, limit)
    base = place(low, low.flat_origin(result), size)
    addresses = [Address(base, flat_offset(at, result) * size) for at in result.registers]
    found = tuple(_taken(low, registers[0].type, address) for address in addresses)
    # The next exchange uses the same memory.
    low.barrier()
    return found


def _put(low: Lowering, op: Operation, registers: Registers, layout: Layout, limit: int) -> int:
    """Elements to shared memory, in row-major order; the threads have met. Returns the bytes of one."""
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else list(registers)
    kind = stored[0].type
    size = REGISTER_BITS[kind] // 8
    low.reserve(layout.size * size, op, limit)
    base = place(low, low.flat_origin(layout), size)
    owner = low.owner(layout)
    for register, at in zip(stored, layout.registers, strict=True):
        low.k.emit(Store("shared", kind), Address(base, flat_offset(at, layout) * size), register, guard=owner)
    low.barrier()
    return size


def _taken(low: Lowering, kind: RegType, address: Address) -> Reg:
    """An element from shared memory; predicates are there as numbers."""
    if kind == "pred":
        return as_truth(low, load_shared(low, "b32", address))
    return load_shared(low, kind, address)


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
