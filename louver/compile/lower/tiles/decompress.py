"""Lowers the conversion between dense and kept elements, group by group. Each thread has the codes of its own groups.

`prmt` places bytes by a selector. It also computes selectors: for each index in the codes of an entry it takes a byte
of a table of four bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from louver.compile.lower.tiles.numbers import bits_of, element_bytes, is_integer
from louver.compile.lower.tiles.packing import WORD, pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import CompressOp, DecompressOp
from louver.ir.tile.layout import Layout, Vector
from louver.ir.tile.parts import PAIR
from louver.ir.tile.types import element_of
from louver.isa.bits import PermuteBytes
from louver.isa.metadata import CODE_BITS, INDEX_BITS
from louver.ptx.module import Reg

NIBBLE = 4
"""Bits of the number of a byte in a selector of `prmt`."""

ZEROS = 4
"""The number of a byte in the second register, which is 0."""

FOUR = 4
"""Columns of a group whose elements `prmt` moves."""

FIRST_INDICES = 0x3333
"""Mask of the first index of each code of an entry."""

PAIRS = (0x5140, 0x7362)
"""Selectors of `prmt` that interleave bytes 0 and 1, or bytes 2 and 3, of two registers."""

BYTE, HALF = 8, 16
"""Bits of a byte and of half a register."""

LOWEST = 15
"""Mask of the lowest code of an entry."""

Table: TypeAlias = tuple[int, ...]
"""The byte of a selector for each value of an index."""

Tables: TypeAlias = Sequence[tuple[Table, Table]]
"""For each byte of a group's selectors, a table for the first index and one for the second.

The byte is the exclusive or of both results.
"""


def lower_decompress(low: Lowering, op: DecompressOp) -> Registers:
    """The elements of a dense tile: kept values and zeros."""
    parts, layout, element = op.parts, low.layout(op.result), element_of(op.result.type)
    values, size = low.layout(op.src), element_bytes(element, op)
    inside = sorted({parts.index(at) for at in layout.registers})
    weights = [parts.index(step) for step in layout.thread]
    tables = {own: _placing(size, [own | each for each in inside]) for own in {0, *weights}}
    codes = _Codes(low, op, layout, tables, weights)
    found: dict[Vector, Sequence[Reg]] = {}
    for at in layout.registers:
        value = parts.value(at)
        if value in found:
            continue
        first = values.register_of(value)
        kept = low.values[op.src][first : first + parts.kept]
        if parts.map.group < FOUR:
            second, zero = codes.test(at, 1), low.constant(0, kept[0].type)
            found[value] = low.k.selp(zero, kept[0], second), low.k.selp(kept[0], zero, second)
            continue
        packed = pack_elements(low, kept, size)
        wide = packed if packed.type == "b32" else low.k.pack_b32(packed, packed)
        words = [low.emit(PermuteBytes(), wide, 0, selector) for selector in codes.selectors(at)]
        count = min(len(inside), WORD // size)
        found[value] = [each for word in words for each in unpack_elements(low, word, count, element, size)]
    return tuple(found[parts.value(at)][inside.index(parts.index(at))] for at in layout.registers)


def lower_compress(low: Lowering, op: CompressOp) -> Registers:
    """The elements of a dense tile at the places where a sparse tile keeps elements."""
    parts, layout, element = op.parts, low.layout(op.result), element_of(op.src.type)
    dense, boolean = low.layout(op.src), is_integer(element) and bits_of(element) == 1
    size = 1 if boolean else element_bytes(element, op)
    codes = _Codes(low, op, dense, {0: _taking(size)}, ())
    words: dict[Registers, Sequence[Reg]] = {}
    found: dict[Vector, Sequence[Reg]] = {}
    for at in layout.registers:
        place = parts.first(at)
        if place in found:
            continue
        first = dense.register_of(place)
        group = low.values[op.src][first : first + parts.map.group]
        if parts.map.group == FOUR and size < WORD:
            if group not in words:
                words[group] = _words(low, group, size, boolean=boolean)
            (selector,) = codes.selectors(place)
            taken = low.emit(PermuteBytes(), words[group][0], words[group][-1], selector)
            found[place] = (
                [low.k.setp("ne", "u32", low.k.and_(taken, 1 << BYTE * number), 0) for number in range(parts.kept)]
                if boolean
                else unpack_elements(low, taken, parts.kept, element, size)
            )
            continue
        if boolean:
            group = tuple(low.k.selp(1, 0, each) for each in group)
        chosen = _chosen(low, codes, place, group)
        found[place] = [low.k.setp("ne", "u32", each, 0) for each in chosen] if boolean else chosen
    return tuple(found[parts.first(at)][parts.number(at)] for at in layout.registers)


def _words(low: Lowering, group: Registers, size: int, *, boolean: bool) -> Sequence[Reg]:
    """Pack the elements of a group in one or two registers. A boolean is the lowest bit of a byte."""
    if not boolean:
        count = WORD // size
        return [pack_elements(low, group[first : first + count], size) for first in range(0, FOUR, count)]
    found, *others = (low.k.selp(1 << BYTE * number, 0, each) for number, each in enumerate(group))
    for each in others:
        found = low.k.or_(found, each)
    return [found]


def _chosen(low: Lowering, codes: _Codes, at: Vector, group: Registers) -> Sequence[Reg]:
    """The kept elements of a group, computed by selects."""
    if len(group) < FOUR:
        # The only kept value is the second element if the first index of the code is 2.
        return [low.k.selp(group[1], group[0], codes.test(at, 1))]
    zero, one, two, three = group
    first = low.k.selp(two, low.k.selp(one, zero, codes.test(at, 0)), codes.test(at, 1))
    last = low.k.selp(low.k.selp(three, two, codes.test(at, INDEX_BITS)), one, codes.test(at, INDEX_BITS + 1))
    return [first, last]


def _placing(size: int, indices: Sequence[int]) -> Tables:
    """Tables for these elements of a group.

    Each byte comes from the kept values in the low bytes of a register, or is zero.
    """
    nibbles = [(index, byte) for index in indices for byte in range(size)]
    first = [tuple(byte if element == index else ZEROS for index in range(FOUR)) for element, byte in nibbles]
    second = [
        tuple((size + byte) ^ ZEROS if element == index else 0 for index in range(FOUR)) for element, byte in nibbles
    ]
    return list(zip(_joined(first), _joined(second), strict=True))


def _taking(size: int) -> Tables:
    """Tables that select the kept elements from all elements of a group."""
    by_index = [tuple(index * size + byte for index in range(FOUR)) for byte in range(size)]
    none = [(0,) * FOUR] * size
    return list(zip(_joined(by_index + none), _joined(none + by_index), strict=True))


def _joined(nibbles: Sequence[Table]) -> list[Table]:
    """Join tables of 4-bit numbers in pairs to tables of bytes."""
    return [
        tuple(one | other << NIBBLE for one, other in zip(*pair, strict=True))
        for pair in zip(nibbles[::2], nibbles[1::2], strict=True)
    ]


class _Codes:
    """The codes of a thread's groups in the metadata of a tile.

    dense: the layout of the dense tile.
    tables: tables of the selectors, by the index of the thread's first element in its group.
    weights: how each bit of the thread's number changes that index.
    """

    def __init__(
        self,
        low: Lowering,
        op: DecompressOp | CompressOp,
        dense: Layout,
        tables: Mapping[int, Tables],
        weights: Sequence[int],
    ) -> None:
        assert op.metadata is not None
        parts = op.parts
        self._low, self._parts, self._tables, self._weights = low, parts, tables, weights
        self._entries, self._layout = low.values[op.metadata], low.layout(op.metadata)
        self._by = low.combined([parts.shift(step) for step in dense.thread])
        self._known: dict[Sequence[int], Sequence[Sequence[Reg]]] = {}
        self._shifted: dict[int, Reg] = {}
        self._tests: dict[tuple[Reg, int], Reg] = {}
        # If a thread has only some of the codes of an entry, the codes of several entries are joined.
        inside = {parts.shift(step) for step in dense.register}
        self._mask = sum(LOWEST << shift for shift in {parts.shift(at) for at in dense.registers})
        self._offsets = [0]
        for bit in (2 * CODE_BITS, CODE_BITS):
            if bit not in inside:
                self._offsets += [bit + each for each in self._offsets]
        entries = sorted(set(map(self._number, dense.registers)))
        self._packs: dict[int, tuple[Sequence[int], int]] = {}
        for first in range(0, len(entries), len(self._offsets)):
            pack = tuple(entries[first : first + len(self._offsets)])
            self._packs.update((each, (pack, offset)) for each, offset in zip(pack, self._offsets, strict=False))

    def test(self, at: Vector, bit: int) -> Reg:
        """Whether a bit of the code of an element's group is set."""
        entry, mask = self._entry(self._number(at)), 1 << self._parts.shift(at) + bit
        if (entry, mask) not in self._tests:
            self._tests[entry, mask] = self._low.k.setp("ne", "u32", self._low.k.and_(entry, mask), 0)
        return self._tests[entry, mask]

    def selectors(self, at: Vector) -> Sequence[Reg]:
        """The selectors for an element's group. Each is the low half of a register."""
        pack, offset = self._packs[self._number(at)]
        if pack not in self._known:
            self._known[pack] = self._made(self._packed(pack))
        return [each[(self._parts.shift(at) + offset) // CODE_BITS] for each in self._known[pack]]

    def _number(self, at: Vector) -> int:
        """The number of the register with the entry of an element's group."""
        return self._layout.register_of(self._parts.entry(at))

    def _entry(self, number: int) -> Reg:
        """An entry, shifted so that the thread's first code is lowest."""
        if number not in self._shifted:
            self._shifted[number] = self._own_codes(self._entries[number])
        return self._shifted[number]

    def _own_codes(self, entries: Reg) -> Reg:
        return entries if self._by is None else self._low.k.shr(entries, self._by)

    def _packed(self, pack: Sequence[int]) -> Reg:
        """Join the thread's codes of several entries in one register."""
        k, total = self._low.k, None
        if len(pack) == 1:
            return self._entry(pack[0])
        pairs = [tuple(self._entries[each] for each in pack[first : first + 2]) for first in range(0, len(pack), 2)]
        together = [word for each in pairs if (word := self._low.packed.get(each)) is not None]
        if 2 * len(together) == len(pack):
            # Two entries are the halves of a register.
            words, mask = [self._own_codes(each) for each in together], self._mask << HALF | self._mask
        else:
            words, mask = list(map(self._entry, pack)), self._mask
        for part, offset in zip(words, self._offsets[:: len(pack) // len(words)], strict=False):
            part = k.and_(part, mask)
            part = k.shl(part, offset) if offset else part
            total = part if total is None else k.or_(total, part)
        assert total is not None
        return total if len(words) == len(pack) else k.or_(total, k.shr(total, HALF - self._offsets[1]))

    def _made(self, entry: Reg) -> Sequence[Sequence[Reg]]:
        """For each word of a group, the selectors of an entry's groups."""
        low, k = self._low, self._low.k
        indices = k.and_(entry, FIRST_INDICES), k.and_(k.shr(entry, INDEX_BITS), FIRST_INDICES)
        count = len(next(iter(self._tables.values())))
        rows = [self._bytes(indices, number) for number in range(count)]
        if len(rows) == 1:
            return [[rows[0], *(k.shr(rows[0], BYTE * number) for number in range(1, FOUR))]]
        found: list[Sequence[Reg]] = []
        for below, above in zip(rows[::2], rows[1::2], strict=True):
            pairs = [low.emit(PermuteBytes(), below, above, pair) for pair in PAIRS]
            found.append([each for pair in pairs for each in (pair, k.shr(pair, HALF))])
        return found

    def _bytes(self, indices: tuple[Reg, Reg], number: int) -> Reg:
        """One byte of the selectors of four groups. The first index of a code is never 3, and the second is never 0."""
        tables = {own: each[number] for own, each in self._tables.items()}
        same = dict.fromkeys(tables, 0)
        changing: list[int] = []
        for which, legal in ((0, slice(0, -1)), (1, slice(1, None))):
            if any(len(set(each[which][legal])) > 1 for each in tables.values()):
                changing.append(which)
            else:
                same = {own: same[own] ^ each[which][legal][0] for own, each in tables.items()}
        found: Reg | None = None
        for which in changing:
            words = {
                own: sum((byte ^ same[own]) << BYTE * place for place, byte in enumerate(each[which]))
                for own, each in tables.items()
            }
            taken = self._low.emit(PermuteBytes(), self._own(words), 0, indices[which])
            found = taken if found is None else self._low.k.xor(found, taken)
            same = dict.fromkeys(tables, 0)
        assert found is not None
        return found

    def _own(self, words: Mapping[int, int]) -> Reg:
        """The word for this thread. words: a word for each index of a thread's first element in its group."""
        low = self._low
        if len(words) == 1:
            return low.constant(words[0], "b32")
        first = low.combined(self._weights)
        assert first is not None
        with low.k.inside(low.prologue):
            return low.k.selp(words[PAIR], words[0], low.k.setp("ne", "u32", first, 0))
