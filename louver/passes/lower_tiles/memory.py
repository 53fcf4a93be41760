"""Loads, stores and atomic operations, by the threads that hold the elements.

Of threads that hold the same elements all load them, and one stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, SSAValue

from louver.ir.tile import AtomicRMWOp, DotOperandAttr, LoadOp, StoreOp
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import register_encoding
from louver.isa.bytes import LoadByte
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import RegType
from louver.isa.memory import AtomicAdd, Store
from louver.isa.sync import FenceGpu
from louver.passes.encode.natural import is_tile
from louver.passes.lower_tiles.exchange import from_owners
from louver.passes.lower_tiles.neighbours import Access, accesses
from louver.passes.lower_tiles.numbers import bits_of, element_bytes, extended, is_integer
from louver.passes.lower_tiles.packing import WORD, pack_elements, unpack_elements
from louver.passes.lower_tiles.state import Lowering, Registers, element_of, register_class
from louver.passes.refusal import unsupported
from louver.ptx.module import Address, Reg


def lower_load(low: Lowering, op: LoadOp) -> Registers:
    """Each element, or what stands for it where the mask does not hold; neighbours are loaded together where they can be."""
    element = element_of(op.result.type)
    size = element_bytes(element, op)
    pointers = low.values[op.ptr]
    masks = _each(low, op.mask, len(pointers))
    others = _each(low, op.other, len(pointers))
    low.begin_load()
    packs = isinstance(register_encoding(op.result.type), DotOperandAttr) and size < WORD
    found: dict[int, Reg] = {}
    for access in accesses(low, pointers, masks, size):
        given = [others[number] for number in access.elements]
        loaded = _load(low, op, access, element, given)
        found.update(zip(access.elements, loaded, strict=True))
        if packs:
            _pack(low, found, access.elements[-1], size)
    return tuple(found[number] for number in range(len(pointers)))


def _each(low: Lowering, value: SSAValue | None, count: int) -> tuple[Reg | None, ...]:
    if value is None:
        return (None,) * count
    found = low.values[value]
    return found if len(found) == count else found * count


def _load(low: Lowering, op: LoadOp, access: Access, element: Attribute, others: Sequence[Reg | None]) -> Sequence[Reg]:
    """The registers of the elements of one access."""
    kind, size = register_class(element, op), element_bytes(element, op)
    count = len(access.elements)
    if count == 1:
        return [_load_one(low, access, element, (kind, size), others[0])]
    if size >= WORD:
        return _load_registers(low, access, kind, count, others)
    words: list[Reg | None] = [None] * (count * size // WORD or 1)
    per_word = count // len(words)
    given = [each for each in others if each is not None]
    if given:
        words = [
            pack_elements(low, given[number : number + per_word], size) for number in range(0, len(given), per_word)
        ]
    wide: RegType = "b32" if count * size >= WORD else "b16"
    loaded = _load_registers(low, access, wide, len(words), words)
    return [each for word in loaded for each in unpack_elements(low, word, per_word, element, size)]


def _load_registers(
    low: Lowering, access: Access, kind: RegType, count: int, others: Sequence[Reg | None]
) -> list[Reg]:
    """Registers from neighbouring addresses."""
    if access.mask is None:
        registers = low.k.regs(kind, count)
    else:
        registers = [low.copy(low.constant(0, kind) if other is None else other) for other in others]
    low.k.load_global(registers, access.address, guard=access.mask)
    return registers


def _load_one(low: Lowering, access: Access, element: Attribute, held: tuple[RegType, int], other: Reg | None) -> Reg:
    kind, size = held
    mask, narrow = access.mask, is_integer(element) and size < WORD
    if mask is None:
        result = low.k.reg("b16" if narrow else kind)
    elif narrow:
        # What stands for it is a 32-bit register, whose low half a load replaces.
        result = low.k.low_half(other) if other is not None else low.copy(low.constant(0, "b16"))
    else:
        result = low.copy(low.constant(0, kind) if other is None else other)
    if size == 1:
        low.k.emit(LoadByte(), result, access.address, guard=mask)
    else:
        low.k.load_global([result], access.address, guard=mask)
    return extended(low, low.emit(ConvertInteger("u32", "u16"), result), element) if narrow else result


def _pack(low: Lowering, found: Mapping[int, Reg], last: int, size: int) -> None:
    """Elements of a dot's operand in the register that it takes, as soon as they are there: the single ones need not be kept."""
    count = WORD // size
    first = last - last % count
    group = tuple(found[number] for number in range(first, first + count) if number in found)
    if len(group) == count and group not in low.packed:
        low.packed[group] = pack_elements(low, group, size)


def lower_store(low: Lowering, op: StoreOp) -> None:
    """Each element where the mask holds, by one of the threads that have it; neighbours together where they can be."""
    layout = _layout(low, op.value)
    element = element_of(op.value.type)
    size = element_bytes(element, op)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = _each(low, op.mask, len(pointers))
    low.begin_store()
    owner = low.owner(layout)
    for access in accesses(low, pointers, masks, size):
        given = [values[number] for number in access.elements]
        _store(low, access, given, size, low.both(access.mask, owner))


def _store(low: Lowering, access: Access, values: Sequence[Reg], size: int, guard: Reg | None) -> None:
    count = len(values)
    if count == 1:
        value = values[0]
        if size < WORD and value.type == "b32":
            value = low.k.low_half(value)
        if size == 1:
            low.k.store_byte(access.address, value, guard=guard)
        else:
            low.k.store_global(access.address, value, guard=guard)
        return
    if size < WORD:
        per_word = min(count, WORD // size)
        values = [pack_elements(low, values[number : number + per_word], size) for number in range(0, count, per_word)]
    if len(values) == 1:
        low.k.store_global(access.address, values[0], guard=guard)
    else:
        vector = cast("Literal[2, 4]", len(values))
        low.k.emit(Store("global", values[0].type, vector), access.address, tuple(values), guard=guard)


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
