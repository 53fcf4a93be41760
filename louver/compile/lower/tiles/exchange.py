"""Moves elements between threads, by shuffles within a warp or through shared memory (`louver.compile.plan.encode.exchange_plan`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, Operation, SSAValue

from louver.compile.lower.tiles.numbers import element_bytes
from louver.compile.lower.tiles.staging import Part, Place, put, take
from louver.compile.lower.tiles.state import Lowering, Registers, register_class
from louver.compile.plan.encode.exchange_plan import ExchangePlan, Means, conversion, plan_exchange
from louver.compile.plan.encode.shared_access import sums
from louver.ir.tile import ConvertLayoutOp, GatherOp
from louver.ir.tile.layout import Layout, Vector
from louver.ir.tile.types import element_of
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import REGISTER_BITS, RegType
from louver.isa.memory import Load, Store
from louver.isa.move import Bitcast, Unpack
from louver.ptx.module import Address, Reg


def lower_conversion(low: Lowering, op: ConvertLayoutOp) -> Registers:
    """The tile in the registers of another layout. Nothing moves if each thread has its elements already."""
    source, result = low.layout(op.src), low.layout(op.result)
    registers = low.values[op.src]
    if source.thread == result.thread:
        return tuple(registers[source.register_of(place)] for place in result.registers)
    found = conversion_of(op, source, result, low.means)
    if isinstance(found, ExchangePlan):
        return through_shared(low, op, registers, found, element_of(op.result.type))
    lane = low.combined(found) or low.constant(0, "b32")
    return tuple(shuffled(low, registers[source.register_of(place)], lane) for place in result.registers)


def from_owners(low: Lowering, op: Operation, registers: Registers, layout: Layout) -> Registers:
    """Copy a tile from the threads that own its elements to all threads of its layout."""
    return through_shared(
        low, op, registers, exchange_plan(op, layout, layout, low.means), element_of(op.results[0].type)
    )


def lower_gather(low: Lowering, op: GatherOp) -> Registers:
    """Store the source to shared memory, and load each element from the place that its index gives."""
    source, result, axis = low.layout(op.src), low.layout(op.result), op.axis.value.data
    registers = low.values[op.src]
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else registers
    kind = stored[0].type
    size, pitch = REGISTER_BITS[kind] // 8, prod(source.shape[axis + 1 :])

    def beside(step: Vector) -> int:
        """The flat length of a step without its component along the axis."""
        return flat_offset((*step[:axis], 0, *step[axis + 1 :]), source)

    low.begin_exchange(op, alone=False)
    base = low.room(op, [flat_offset(step, source) * size for step in source.thread])
    for register, at in zip(stored, source.registers, strict=True):
        address = Address(base, flat_offset(at, source) * size)
        low.k.emit(Store("shared", kind), address, register, guard=low.owner(source))
    low.take_exchanged(op, alone=False)
    base = low.room(op, [beside(step) * size for step in result.thread])
    found: list[Reg] = []
    for index, at in zip(low.values[op.indices], result.registers, strict=True):
        narrow = low.emit(ConvertInteger("u32", "u64"), index) if index.type == "b64" else index
        address = low.k.mad_lo(narrow, pitch * size, base)
        element = load_shared(low, kind, Address(address, beside(at) * size))
        found.append(as_truth(low, element) if truths else element)
    return tuple(found)


def exchange_plan(op: Operation, source: Layout, result: Layout, means: Means) -> ExchangePlan:
    """The plan by which the elements of an operation's result change threads through shared memory."""
    return plan_exchange(source, result, exchanged_bytes(op.results[0], op), means)


def conversion_of(op: Operation, source: Layout, result: Layout, means: Means) -> ExchangePlan | tuple[int, ...]:
    """The plan by which the elements of an operation's result change threads.

    For shuffles it is the result of `source_lanes`.
    """
    return conversion(source, result, exchanged_bytes(op.results[0], op), means)


def exchanged_bytes(value: SSAValue, op: Operation) -> int:
    """Bytes of an element of a value in an exchange. Booleans are exchanged as 32-bit numbers."""
    element = element_of(value.type)
    return REGISTER_BITS["b32"] // 8 if register_class(element, op) == "pred" else element_bytes(element, op)


def through_shared(
    low: Lowering, op: Operation, registers: Registers, plan: ExchangePlan, element: Attribute
) -> Registers:
    """The tile after one exchange in the operation's part of shared memory."""
    source, result = plan.source, plan.result
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else registers
    numbers = dict(zip(source.registers, stored, strict=True))
    start, found = low.rooms.exchanges[op], dict[tuple[int, ...], Reg]()
    put_at = Place.at(low, plan.memory, start, (*plan.store.lanes(source), *source.warp))
    take_at = Place.at(low, plan.memory, start, (*plan.load.lanes(result), *result.warp))
    for first in sums(plan.apart, (0,) * len(source.shape)):
        part = Part(first, plan.apart)
        low.begin_exchange(op, alone=plan.local and any(first))
        put(put_at, source, plan.store, part, numbers, low.owner(source))
        low.take_exchanged(op, alone=plan.local)
        found.update(take(take_at, result, plan.load, part, i32 if truths else element, op))
    return tuple(as_truth(low, found[at]) if truths else found[at] for at in result.registers)


def shuffled(low: Lowering, register: Reg, lane: Reg) -> Reg:
    """The value of the register in another lane."""
    k = low.k
    match register.type:
        case "b32":
            return k.shuffle(register, lane)
        case "f32":
            return low.emit(Bitcast("f32"), k.shuffle(low.emit(Bitcast("b32"), register), lane))
        case "pred":
            return as_truth(low, k.shuffle(as_number(low, register), lane))
        case "b16":
            return k.low_half(k.shuffle(k.pack_b32(register, register), lane))
        case "b64":
            low_half, high_half = k.regs("b32", 2)
            k.emit(Unpack("b64"), (low_half, high_half), register)
            return k.pack_b64(k.shuffle(low_half, lane), k.shuffle(high_half, lane))


def flat_offset(step: Sequence[int], layout: Layout) -> int:
    """A step or place as an offset in row-major order, in elements."""
    flat = 0
    for by, size in zip(step, layout.shape, strict=True):
        flat = flat * size + by
    return flat


def load_shared(low: Lowering, kind: RegType, address: Address) -> Reg:
    """Load one register from shared memory."""
    result = low.k.reg(kind)
    low.k.emit(Load("shared", kind), result, address)
    return result


def as_number(low: Lowering, truth: Reg) -> Reg:
    """A predicate as 1 or 0."""
    return low.k.selp(low.constant(1, "b32"), low.constant(0, "b32"), truth)


def as_truth(low: Lowering, number: Reg) -> Reg:
    """1 or 0 as a predicate."""
    return low.k.setp("ne", "u32", number, 0)
