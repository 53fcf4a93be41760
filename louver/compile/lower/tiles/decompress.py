"""A dense tile from values and metadata: a thread has those of its own groups, and places the kept values among zeros."""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.lower.tiles.numbers import element_bytes
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, Registers, element_of
from louver.ir.tile import DecompressOp
from louver.ir.tile.layout import Vector
from louver.isa.bits import PermuteBytes
from louver.isa.metadata import INDEX_BITS, INDEX_MASK
from louver.ptx.module import Reg

NIBBLE = 4
"""Bits of the number of a byte in a selector of `prmt`."""


def lower_decompression(low: Lowering, op: DecompressOp) -> Registers:
    """The elements of a dense tile, group by group."""
    assert op.metadata is not None
    parts, layout, element = op.parts, low.layout(op.result), element_of(op.result.type)
    values, entries = low.layout(op.src), low.layout(op.metadata)
    size, group = element_bytes(element, op), parts.map.group
    found: dict[Vector, Sequence[Reg]] = {}
    for at in layout.registers:
        value, entry = parts.value(at), parts.entry(at)
        if value in found:
            continue
        word = low.values[op.metadata][entries.register_of(entry)]
        first = values.register_of(value)
        kept = low.values[op.src][first : first + parts.kept]
        if size == WORD:
            found[value] = _chosen(low, kept[0], word, parts.shift(at))
        else:
            selector = _selector(low, word, parts.shift(at), size)
            found[value] = [
                each
                for packed in _spread(low, pack_elements(low, kept, size), selector, group * size // WORD)
                for each in unpack_elements(low, packed, WORD // size, element, size)
            ]
    return tuple(found[parts.value(at)][parts.index(at)] for at in layout.registers)


def _chosen(low: Lowering, value: Reg, word: Reg, shift: int) -> Sequence[Reg]:
    """The two elements of a group with one kept value: its code's first index is 0 or 2."""
    second = low.k.setp("ne", "u32", low.k.and_(word, 2 << shift), 0)
    zero = low.constant(0, value.type)
    return low.k.selp(zero, value, second), low.k.selp(value, zero, second)


def _selector(low: Lowering, word: Reg, shift: int, size: int) -> Reg:
    """The selectors of `prmt` for a group's elements, `size` nibbles each: of the kept values, which are the low bytes, or zero bytes."""
    width = NIBBLE * size
    zeros = sum(NIBBLE << NIBBLE * number for number in range(NIBBLE * size))
    selector: Reg | None = None
    for number in range(2):
        chosen = sum((number * size + byte) << NIBBLE * byte for byte in range(size))
        changed = chosen ^ zeros & (1 << width) - 1
        by = _index(low, word, shift + INDEX_BITS * number, width)
        moved = low.k.shl(low.constant(changed, "b32"), by)
        selector = low.k.xor(moved, zeros if selector is None else selector)
    assert selector is not None
    return selector


def _index(low: Lowering, word: Reg, shift: int, times: int) -> Reg:
    """An index of a code, so many times: a power of two."""
    further = shift - (times.bit_length() - 1)
    moved = low.k.shr(word, further) if further > 0 else low.k.shl(word, -further) if further else word
    return low.k.and_(moved, INDEX_MASK * times)


def _spread(low: Lowering, kept: Reg, selector: Reg, count: int) -> list[Reg]:
    """The words of a group."""
    wide = kept if kept.type == "b32" else low.k.pack_b32(kept, kept)
    return [
        low.emit(PermuteBytes(), wide, 0, low.k.shr(selector, NIBBLE * WORD * number) if number else selector)
        for number in range(count)
    ]
