"""Loads, stores and atomic operations: an access an element, by the threads that hold it.

Of threads that hold the same elements all load them, and one stores them.
"""

from __future__ import annotations

from typing import Literal

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Operation, SSAValue

from louver.ir.tile import AtomicRMWOp, LoadOp, StoreOp
from louver.ir.tile.layout import Layout
from louver.isa.bytes import LoadByte
from louver.isa.convert import ConvertInteger
from louver.isa.memory import AtomicAdd
from louver.isa.sync import FenceGpu
from louver.passes.encode.natural import is_tile
from louver.passes.lower_tiles.exchange import from_owners
from louver.passes.lower_tiles.numbers import bits_of, element_bytes, extended, is_integer
from louver.passes.lower_tiles.state import Lowering, Registers, element_of, register_class
from louver.passes.refusal import unsupported
from louver.ptx.module import Address, Reg


def lower_load(low: Lowering, op: LoadOp) -> Registers:
    """Each element, or what stands for it where the mask does not hold."""
    element = element_of(op.result.type)
    pointers = low.values[op.ptr]
    masks = _each(low, op.mask, len(pointers))
    others = _each(low, op.other, len(pointers))
    low.begin_load()
    triples = zip(pointers, masks, others, strict=True)
    return tuple(load_element(low, op, pointer, element, mask, other) for pointer, mask, other in triples)


def _each(low: Lowering, value: SSAValue | None, count: int) -> tuple[Reg | None, ...]:
    if value is None:
        return (None,) * count
    found = low.values[value]
    return found if len(found) == count else found * count


def load_element(
    low: Lowering, op: Operation, pointer: Reg, element: Attribute, mask: Reg | None, other: Reg | None
) -> Reg:
    """One element at an address."""
    kind, size = register_class(element, op), element_bytes(element, op)
    narrow = is_integer(element) and size < 4
    if mask is None:
        result = low.k.reg("b16" if narrow else kind)
    elif narrow:
        # What stands for it is a 32-bit register, whose low half a load replaces.
        result = low.k.low_half(other) if other is not None else low.copy(low.constant(0, "b16"))
    else:
        result = low.copy(low.constant(0, kind) if other is None else other)
    if size == 1:
        low.k.emit(LoadByte(), result, Address(pointer), guard=mask)
    else:
        low.k.load_global([result], Address(pointer), guard=mask)
    return extended(low, low.emit(ConvertInteger("u32", "u16"), result), element) if narrow else result


def lower_store(low: Lowering, op: StoreOp) -> None:
    """Each element where the mask holds, by one of the threads that have it."""
    layout = _layout(low, op.value)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = _each(low, op.mask, len(pointers))
    low.begin_store()
    owner = low.owner(layout)
    element = element_of(op.value.type)
    for pointer, value, mask in zip(pointers, values, masks, strict=True):
        store_element(low, op, pointer, value, element, low.both(mask, owner))


def store_element(
    low: Lowering, op: Operation, pointer: Reg, value: Reg, element: Attribute, guard: Reg | None
) -> None:
    """One element to an address."""
    size = element_bytes(element, op)
    if size < 4 and value.type == "b32":
        value = low.k.low_half(value)
    if size == 1:
        low.k.store_byte(Address(pointer), value, guard=guard)
    else:
        low.k.store_global(Address(pointer), value, guard=guard)


def _layout(low: Lowering, value: SSAValue) -> Layout:
    """A tile's, or that of a scalar, which all threads hold."""
    if is_tile(value):
        return low.layout(value)
    warps = low.warps.bit_length() - 1
    return Layout((), (), ((),) * 5, ((),) * warps)


def lower_atomic(low: Lowering, op: AtomicRMWOp, limit: int) -> Registers | None:
    """Sums in memory, element by element; None where nothing uses what was there before. All orders but `relaxed` are acq_rel."""
    element = element_of(op.value.type)
    kind = _atomic_type(op, element)
    layout = _layout(low, op.value)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = _each(low, op.mask, len(pointers))
    low.begin_store()
    ordered = op.sem.data != "relaxed"
    if ordered:
        # The threads have met: each hands on what all of them have stored.
        low.k.emit(FenceGpu())
    owner = low.owner(layout)
    before: list[Reg] = []
    used = op.result.first_use is not None
    for pointer, value, mask in zip(pointers, values, masks, strict=True):
        guard = low.both(mask, owner)
        if used:
            before.append(low.copy(low.constant(0, value.type)))
            low.k.emit(AtomicAdd(kind, returns=True), before[-1], Address(pointer), value, guard=guard)
        else:
            low.k.emit(AtomicAdd(kind), Address(pointer), value, guard=guard)
    if ordered:
        low.k.emit(FenceGpu())
    if not used:
        return None
    return from_owners(low, op, tuple(before), layout, limit) if owner is not None else tuple(before)


def _atomic_type(op: AtomicRMWOp, element: Attribute) -> Literal["f32", "u32", "u64"]:
    kind = op.kind.data
    if kind == "fadd" and isinstance(element, Float32Type):
        return "f32"
    if kind == "add" and is_integer(element) and bits_of(element) in (32, 64):
        return "u32" if bits_of(element) == 32 else "u64"
    raise unsupported("atomic operations add f32, or integers of 32 or 64 bits", op)
