"""Loads and stores, by the threads that hold the elements.

Where several threads hold the same elements, all of them load, and one stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, cast

from xdsl.ir import Attribute, SSAValue

from louver.compile.lower.tiles.neighbours import Access, accesses
from louver.compile.lower.tiles.numbers import element_bytes, extended, is_integer
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, Registers, element_of, register_class
from louver.compile.plan.encode.anchors import is_tile
from louver.ir.tile import DotOperandAttr, LoadOp, StoreOp
from louver.ir.tile.layout import Layout
from louver.ir.tile.types import register_encoding
from louver.isa.bytes import LoadByte
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import RegType
from louver.isa.memory import Store
from louver.ptx.module import Reg


def lower_load(low: Lowering, op: LoadOp) -> Registers:
    """Each element, or what stands for it where the mask does not hold; neighbours are loaded together where they can be."""
    element = element_of(op.result.type)
    size = element_bytes(element, op)
    pointers = low.values[op.ptr]
    masks = each_of(low, op.mask, len(pointers))
    others = each_of(low, op.other, len(pointers))
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


def each_of(low: Lowering, value: SSAValue | None, count: int) -> tuple[Reg | None, ...]:
    """A mask's registers, or what stands for elements, one for each of so many elements; None where there is no such operand."""
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
        # A 32-bit register stands for it, and a load replaces its low half.
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
    layout = layout_of(low, op.value)
    element = element_of(op.value.type)
    size = element_bytes(element, op)
    pointers, values = low.values[op.ptr], low.values[op.value]
    masks = each_of(low, op.mask, len(pointers))
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


def layout_of(low: Lowering, value: SSAValue) -> Layout:
    """A tile's, or that of a scalar, which all threads hold."""
    if is_tile(value):
        return low.layout(value)
    warps = low.warps.bit_length() - 1
    return Layout((), (), ((),) * 5, ((),) * warps)
