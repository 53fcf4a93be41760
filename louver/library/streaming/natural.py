"""Access to the values and indices of a sparse tensor in the memory of a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from louver.formats.codes import CODE_PARTS, FILLER
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.memory import Load, Store
from louver.library.streaming.lanes import Byte, assemble
from louver.library.streaming.place import Corner, Place, ahead
from louver.library.streaming.record import Streaming
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg


@dataclass(slots=True)
class Natural:
    """The values [rows, kept] and the indices [rows, index bytes] of a sparse tensor, with the rows of all entries.

    values, indices: addresses. values is None if a kernel has no values.
    pitch: bytes from one row of values to the next.
    rows: rows of an entry.
    size: elements of a dense row.
    """

    k: KernelBuilder
    record: Streaming
    values: Reg | None
    pitch: Reg | None
    indices: Reg
    rows: Reg
    size: Reg
    _place: Place | None = None
    _values: tuple[Reg, ...] = ()
    _indices: tuple[Reg, ...] = ()

    def begin(self, corner: Corner) -> None: ...

    def end(self, corner: Corner) -> None: ...

    def open(self, place: Place) -> None:
        k, record = self.k, self.record
        self._place = place
        rows = [k.mad_lo(place.entry, self.rows, row) for row in place.rows]
        groups = k.div(k.add(self.size, record.pattern.m - 1), record.pattern.m)
        coded = record.pattern in CODE_PARTS
        row_bytes = k.div(k.add(groups, 1), 2) if coded else k.mul_lo(groups, record.pattern.n)
        start = k.mad_wide(place.span, record.index_bytes, self.indices)
        self._indices = tuple(k.mad_wide(row, row_bytes, start) for row in rows)
        if self.values is not None and self.pitch is not None:
            start = k.mad_wide(place.span, 4 * record.value_words, self.values)
            self._values = tuple(k.add(start, k.mul_lo(k.widen_u64(row), self.pitch)) for row in rows)

    def advance(self, steps: int) -> None:
        spans = steps * self.record.spans
        for ats, size in ((self._values, 4 * self.record.value_words), (self._indices, self.record.index_bytes)):
            for at in ats:
                self.k.add(at, spans * size, into=at)

    def load_values(self, row: int, step: int) -> list[Reg]:
        """The values of a span; zeros outside the matrix."""
        k = self.k
        found: list[Reg] = []
        for address, inside, count in self._value_accesses(row, step):
            words = [k.mov(0) for _ in range(count)]
            k.load_global(words, address, guard=inside, read_only=True)
            found += words
        return found

    def store_values(self, row: int, step: int, words: Sequence[Reg]) -> None:
        """Write the values of a span. The last access of a row also writes zeros after the last value."""
        done = 0
        for address, inside, count in self._value_accesses(row, step):
            self.k.store_global(address, words[done : done + count], guard=inside)
            done += count

    def _value_accesses(self, row: int, step: int) -> list[tuple[Address, Reg, int]]:
        """The accesses of a span: address, whether the matrix has a value there, and number of words."""
        record, words = self.record, self.record.value_words
        count = gcd(words, 4)
        per_group = record.pattern.n * record.stored_type.bytes
        found: list[tuple[Address, Reg, int]] = []
        for word in range(0, words, count):
            offset = step * record.spans * 4 * words + 4 * word
            found.append((Address(self._values[row], offset), self._has(row, step, 4 * word // per_group), count))
        return found

    def load_indices(self, row: int, step: int) -> list[Byte]:
        """The bytes of indices of a span; legal padding outside the matrix."""
        k, width, record = self.k, self.record.indices, self.record
        coded = record.pattern in CODE_PARTS
        outside = [FILLER * 0x11 if coded else at % record.pattern.n for at in range(record.index_bytes)]
        found: list[Byte] = []
        halves: list[Reg] = []
        for at, address, inside in self._index_accesses(row, step):
            default = int.from_bytes(bytes(outside[at : at + width]), "little")
            if width == 4:
                word = k.mov(default)
                k.load_global((word,), address, guard=inside, read_only=True)
                found += [(word, byte) for byte in range(4)]
                continue
            halves.append(k.mov(default, kind="b16"))
            load = LoadByte() if width == 1 else Load("global", "b16", read_only=True)
            k.emit(load, halves[-1], address, guard=inside)
        for low, high in zip(halves[::2], [*halves[1::2], *halves[-1:]], strict=False):
            word = k.pack_b32(low, high)
            found += [(word, 2 * half + byte) for half in range(1 if high is low else 2) for byte in range(width)]
        return found

    def store_indices(self, row: int, step: int, indices: Sequence[Byte]) -> None:
        """Write the bytes of indices of a span; nothing outside the matrix."""
        k, width = self.k, self.record.indices
        for at, address, inside in self._index_accesses(row, step):
            (word,) = assemble(k, [indices[at : at + width]])
            if width == 4:
                k.store_global(address, word, guard=inside)
            else:
                k.emit(StoreByte() if width == 1 else Store("global", "b16"), address, k.low_half(word), guard=inside)

    def _index_accesses(self, row: int, step: int) -> list[tuple[int, Address, Reg]]:
        size, groups = self.record.index_bytes, self.record.span_groups
        first = step * self.record.spans * size
        return [
            (at, Address(self._indices[row], first + at), self._has(row, step, at * groups // size))
            for at in range(0, size, self.record.indices)
        ]

    def _has(self, row: int, step: int, group: int) -> Reg:
        """Whether a group of a span is inside the matrix."""
        assert self._place is not None
        return self._place.inside(self.k, row, ahead(self.record, step) + group * self.record.pattern.m)
