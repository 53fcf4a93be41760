"""Packs elements of 8 and 16 bits in one register, for dots and wide accesses, and unpacks them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute

from louver.compile.lower.tiles.numbers import is_integer, is_unsigned
from louver.compile.lower.tiles.state import Byte, Lowering
from louver.isa.bits import ExtractField, PermuteBytes
from louver.isa.scalar import Binary
from louver.ptx.module import Reg

WORD = 4
"""Bytes of a register with several elements."""

LOW_BYTES, LOW_HALVES = 0x0040, 0x5410
"""Selectors of `prmt` for the low bytes of two registers, and for their low halves."""


SIGNS = 0x80808080
"""Mask of the top bits of four bytes."""


def pack_elements(low: Lowering, elements: Sequence[Reg], size: int) -> Reg:
    """Pack 2 or 4 elements in one register, the first in the lowest bits. size: bytes of an element.

    The register has 16 bits for two bytes, else 32.
    """
    known = low.packed.get(tuple(elements))
    if known is not None:
        return known
    k, whole = low.k, elements[0].type == "b32"
    if size == 1 and len(elements) == WORD and all(each in low.bytes for each in elements):
        return _gathered(low, [low.bytes[each] for each in elements])
    if size == 2:
        return low.emit(PermuteBytes(), *elements, LOW_HALVES) if whole else k.pack_b32(elements[0], elements[1])
    pairs = [_bytes(low, one, other) for one, other in zip(elements[::2], elements[1::2], strict=True)]
    if len(pairs) == 1:
        return k.low_half(pairs[0]) if whole else pairs[0]
    return low.emit(PermuteBytes(), *pairs, LOW_HALVES) if whole else k.pack_b32(pairs[0], pairs[1])


def _gathered(low: Lowering, elements: Sequence[Byte]) -> Reg:
    """Pack four bytes, taken directly from the words that contain them."""
    pairs = [
        low.emit(PermuteBytes(), one.word, other.word, one.number | (WORD + other.number) << 4)
        for one, other in zip(elements[::2], elements[1::2], strict=True)
    ]
    return low.emit(PermuteBytes(), *pairs, LOW_HALVES)


def _bytes(low: Lowering, one: Reg, other: Reg) -> Reg:
    """Pack two bytes in a register of the same class as the elements."""
    if one.type == "b32":
        return low.emit(PermuteBytes(), one, other, LOW_BYTES)
    return low.emit(Binary("or", "b16"), one, low.emit(Binary("shl", "b16"), other, 8))


def unpack_elements(low: Lowering, word: Reg, count: int, element: Attribute, size: int) -> list[Reg]:
    """The elements in a register, each in the format of a tile."""
    k = low.k
    wide = word if word.type == "b32" else k.pack_b32(word, word)
    if is_integer(element):
        field = ExtractField("u32" if is_unsigned(element) else "s32")
        found = [low.emit(field, wide, 8 * size * number, 8 * size) for number in range(count)]
        if size == 1:
            flipped = k.xor(wide, SIGNS)
            low.bytes.update((each, Byte(wide, flipped, number)) for number, each in enumerate(found))
    elif size == 2:
        found = list(k.halves(wide))
    else:
        found = [k.low_half(low.emit(ExtractField("u32"), wide, 8 * number, 8)) for number in range(count)]
        low.bytes.update((each, Byte(wide, wide, number)) for number, each in enumerate(found))
    if count * size == WORD:
        low.packed[tuple(found)] = word
    return found
