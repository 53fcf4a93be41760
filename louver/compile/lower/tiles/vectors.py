"""Lowers loads and stores of neighbouring elements by one instruction, in global or shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

from xdsl.ir import Attribute, Operation

from louver.compile.lower.tiles.numbers import element_bytes, extended, is_integer
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, register_class
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import RegType
from louver.isa.memory import Load, Store
from louver.ptx.module import Address, Reg

Space: TypeAlias = Literal["global", "shared"]


def load_elements(
    low: Lowering,
    space: Space,
    address: Address,
    element: Attribute,
    op: Operation,
    others: Sequence[Reg | None],
    mask: Reg | None = None,
    *,
    fresh: bool = False,
) -> Sequence[Reg]:
    """Load neighbours.

    Each register has the format of a tile. others: the value of each element if the mask is false; None for 0. fresh: see `LoadOp`.
    """
    kind, size, count = register_class(element, op), element_bytes(element, op), len(others)
    if count == 1 and size < WORD:
        return [_load_narrow(low, space, address, element, op, others[0], mask, fresh)]
    if size >= WORD:
        return _load_registers(low, space, address, kind, others, mask, fresh)
    words: list[Reg | None] = [None] * (count * size // WORD or 1)
    per_word = count // len(words)
    given = [each for each in others if each is not None]
    if given:
        words = [
            pack_elements(low, given[number : number + per_word], size) for number in range(0, len(given), per_word)
        ]
    loaded = _load_registers(low, space, address, "b32" if count * size >= WORD else "b16", words, mask, fresh)
    return [each for word in loaded for each in unpack_elements(low, word, per_word, element, size)]


def _load_registers(
    low: Lowering,
    space: Space,
    address: Address,
    kind: RegType,
    others: Sequence[Reg | None],
    mask: Reg | None,
    fresh: bool,
) -> Sequence[Reg]:
    """Load registers from neighbouring addresses."""
    if mask is None:
        registers = low.k.regs(kind, len(others))
    else:
        registers = [low.copy(low.constant(0, kind) if other is None else other) for other in others]
    load = Load(space, kind, cast("Literal[1, 2, 4]", len(registers)), volatile=fresh)
    low.k.emit(load, registers[0] if len(registers) == 1 else tuple(registers), address, guard=mask)
    return registers


def _load_narrow(
    low: Lowering,
    space: Space,
    address: Address,
    element: Attribute,
    op: Operation,
    other: Reg | None,
    mask: Reg | None,
    fresh: bool,
) -> Reg:
    """Load one element of 8 or 16 bits."""
    narrow, kind = is_integer(element), register_class(element, op)
    if mask is None:
        result = low.k.reg("b16" if narrow else kind)
    elif narrow:
        # The element has a 32-bit register, and the load replaces its low half.
        result = low.k.low_half(other) if other is not None else low.copy(low.constant(0, "b16"))
    else:
        result = low.copy(low.constant(0, kind) if other is None else other)
    load = LoadByte(space, fresh) if element_bytes(element, op) == 1 else Load(space, result.type, volatile=fresh)
    low.k.emit(load, result, address, guard=mask)
    return extended(low, low.emit(ConvertInteger("u32", "u16"), result), element) if narrow else result


def store_elements(
    low: Lowering,
    space: Space,
    address: Address,
    elements: Sequence[Reg],
    size: int,
    guard: Reg | None,
    *,
    shown: bool = False,
) -> None:
    """Store neighbours by one instruction. size: bytes of an element. shown: whether other programs wait for it."""
    count = len(elements)
    if count > 1 and size < WORD:
        each = min(count, WORD // size)
        elements = [pack_elements(low, elements[number : number + each], size) for number in range(0, count, each)]
    elif size < WORD and elements[0].type == "b32":
        elements = [low.k.low_half(elements[0])]
    vector = cast("Literal[1, 2, 4]", len(elements))
    store = StoreByte(space, shown) if count * size == 1 else Store(space, elements[0].type, vector, shown)
    low.k.emit(store, address, elements[0] if vector == 1 else tuple(elements), guard=guard)
