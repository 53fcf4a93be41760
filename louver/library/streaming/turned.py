"""Tiles in shared memory. Dense arrays with contiguous columns are read and written along columns, and transposed in
such a tile.

A tile has the rows of a CTA's tile, `row_bytes` each. The offset of a 16-byte chunk in its row is the exclusive or of
its place and a mark of the row. So accesses of a warp spread over the banks, both those down many rows and those along
few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from louver.isa.fragments import ROWS
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.streaming.lanes import Lanes
from louver.library.streaming.place import Corner, Place
from louver.library.streaming.record import VECTOR_BYTES, Access, Streaming
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg

AT_ONCE = 4
"""Accesses to global memory in flight of a thread while it transposes a tile."""


def _mark(row: int) -> int:
    """The mask of the exclusive or of offsets in a row. If two row numbers have no common bits, the mask of their sum
    is the exclusive or of their masks.
    """
    return (row >> 3 ^ row) % 8 * VECTOR_BYTES


@dataclass(slots=True)
class SharedTile:
    """A tile in shared memory, with access to its spans and columns."""

    k: KernelBuilder
    record: Streaming
    _rows: tuple[Reg, ...] = ()
    _marks: tuple[Reg, ...] = ()
    _at: Reg | None = None

    @staticmethod
    def bytes(record: Streaming) -> int:
        """Bytes of shared memory."""
        return ROWS * record.row_bytes

    def open(self, rows: Sequence[Reg], span: Reg) -> None:
        """Move to a span of some rows, counted in the tile."""
        self._rows = tuple(self.row(row) for row in rows)
        self._marks = tuple(self.mark(row) for row in rows)
        self._at = self.k.mul_lo(span, 4 * self.record.span_words)

    def advance(self, steps: int) -> None:
        """Advance by `steps` steps."""
        assert self._at is not None
        self.k.add(self._at, steps * self._step, into=self._at)

    def load(self, row: int, step: int) -> list[Reg]:
        """The words of a span."""
        k, count = self.k, self._count
        found: list[Reg] = []
        for address in self._accesses(row, step):
            words = k.regs("b32", count)
            k.load_shared(words, address)
            found += words
        return found

    def store(self, row: int, step: int, words: Sequence[Reg]) -> None:
        """Write the words of a span."""
        count = self._count
        for number, address in enumerate(self._accesses(row, step)):
            self.k.store_shared(address, words[number * count : (number + 1) * count])

    def row(self, row: Reg) -> Reg:
        """The address of a row."""
        return self.k.mad_lo(row, self.record.row_bytes, self.k.shared_symbol())

    def mark(self, row: Reg) -> Reg:
        """`_mark` of a row."""
        k = self.k
        return k.mul_lo(k.and_(k.xor(k.shr(row, 3), row), 7), VECTOR_BYTES)

    def put(self, place: Reg, words: Sequence[Reg], rows: Sequence[int]) -> None:
        """Write parts of neighbouring columns.

        place: address in the first of the rows.
        words: for each column, a word with the elements of these rows.
        rows: rows, relative to the row of `place`.
        """
        for row, turned in zip(rows, exchanged(self.k, self.record.type.bits, words), strict=True):
            self.k.store_shared(self._in_row(place, row), turned)

    def get(self, place: Reg, rows: int) -> list[list[Reg]]:
        """The parts of neighbouring columns, `rows` elements each, as `put` writes them."""
        words = self.k.regs("b32", rows)
        for row, word in enumerate(words):
            self.k.load_shared((word,), self._in_row(place, row))
        lanes = self.record.lanes
        turned = [exchanged(self.k, self.record.type.bits, words[at : at + lanes]) for at in range(0, rows, lanes)]
        return [[some[column] for some in turned] for column in range(lanes)]

    def _in_row(self, place: Reg, row: int) -> Address:
        """The same place, `row` rows further. The row of `place` must be a multiple of a power of two above `row`."""
        return Address(self.k.xor(place, _mark(row)) if row else place, row * self.record.row_bytes)

    @property
    def _step(self) -> int:
        return self.record.spans * 4 * self.record.span_words

    @property
    def _count(self) -> int:
        """Words of an access."""
        return gcd(self.record.span_words, 4)

    def _accesses(self, row: int, step: int) -> list[Address]:
        k = self.k
        assert self._at is not None
        places = [k.add(self._at, step * self._step + 4 * at) for at in range(0, self.record.span_words, self._count)]
        return [Address(k.add(self._rows[row], k.xor(place, self._marks[row]))) for place in places]


@dataclass(slots=True)
class Turned:
    """A dense array with contiguous columns. All threads of a CTA copy it together, tile by tile.

    base: address of the array.
    steps: bytes from one element of a row to the next, and from one entry to the next.
    shape: rows and columns of an entry.
    mine: the number of this thread, and its rows and span in a tile.
    reading: whether the kernel reads the array; else it writes the array.
    """

    k: KernelBuilder
    record: Streaming
    access: Access
    base: Reg
    steps: tuple[Reg, Reg]
    shape: tuple[Reg, Reg]
    mine: tuple[Reg, Sequence[Reg], Reg]
    reading: bool
    tile: SharedTile

    def begin(self, corner: Corner) -> None:
        if self.reading:
            self._move(corner)
            self.k.barrier_sync(0, WARPGROUP_THREADS)

    def open(self, place: Place) -> None:
        self.tile.open(*self.mine[1:])

    def advance(self, steps: int) -> None:
        self.tile.advance(steps)

    def load(self, row: int, step: int) -> list[Reg]:
        """The words of a span; zeros outside the matrix."""
        return self.tile.load(row, step)

    def store(self, row: int, step: int, words: Sequence[Reg]) -> None:
        """Write the words of a span."""
        self.tile.store(row, step, words)

    def end(self, corner: Corner) -> None:
        if not self.reading:
            self._move(corner)
            # The next tile overwrites this one, so all threads must have read it. If the source has the same access,
            # each thread overwrites only what it has read itself.
            if self.record.source != self.access:
                self.k.barrier_sync(0, WARPGROUP_THREADS)

    def _move(self, corner: Corner) -> None:
        k, record, tile = self.k, self.record, self.tile
        size, lanes = record.type.bytes, record.lanes
        (column_step, entry_step), thread = self.steps, self.mine[0]
        rows = self.access.width // size
        # A thread copies some rows of the columns of one word at a time. The next thread has the next rows.
        chunks = ROWS // rows
        apart = WARPGROUP_THREADS // chunks
        batch = gcd(AT_ONCE // lanes, record.columns // lanes // apart)
        first, word = k.mul_lo(k.and_(thread, chunks - 1), rows), k.div(thread, chunks)
        mine, element = k.add(corner.row, first), k.add(corner.column, k.mul_lo(word, lanes))
        left = k.selp(k.sub(self.shape[1], element), 0, k.setp("lt", "u32", mine, self.shape[0]))
        at = k.add(self.base, k.mul_lo(k.widen_u64(corner.entry), entry_step))
        at = k.add(k.mad_wide(mine, size, at), k.mul_lo(k.widen_u64(element), column_step))
        line, mark, byte = tile.row(first), tile.mark(first), k.mul_lo(word, 4)
        ahead = k.mul_lo(column_step, apart * lanes)
        with k.loop(uniform=True) as words:
            starts = [at]
            for _ in range(1, batch):
                starts.append(k.add(starts[-1], ahead))
            places = [
                k.add(line, k.xor(k.add(byte, 4 * apart * number) if number else byte, mark)) for number in range(batch)
            ]
            accesses = [
                [
                    (address, k.setp("gt", "s32", left, number * apart * lanes + lane))
                    for lane, address in enumerate(self._columns(start))
                ]
                for number, start in enumerate(starts)
            ]
            if self.reading:
                found = [[self._load(address, inside) for address, inside in some] for some in accesses]
                for place, columns in zip(places, found, strict=True):
                    for word in range(self.access.width // 4):
                        of_word = range(word * lanes, (word + 1) * lanes)
                        tile.put(place, [column[word] for column in columns], of_word)
            else:
                for place, some in zip(places, accesses, strict=True):
                    for (address, inside), column_words in zip(some, tile.get(place, rows), strict=True):
                        k.store_global(Address(address), column_words, guard=inside)
            k.add(starts[-1], ahead, into=at)
            k.add(byte, 4 * apart * batch, into=byte)
            k.sub(left, apart * batch * lanes, into=left)
            words.repeat_if(k.setp("lt", "u32", byte, record.row_bytes))

    def _columns(self, start: Reg) -> list[Reg]:
        """The addresses of the columns of one word of the tile."""
        found = [start]
        for _ in range(1, self.record.lanes):
            found.append(self.k.add(found[-1], self.steps[0]))
        return found

    def _load(self, address: Reg, inside: Reg) -> list[Reg]:
        words = [self.k.mov(0) for _ in range(self.access.width // 4)]
        self.k.load_global(words, Address(address), guard=inside, read_only=True)
        return words


def exchanged(k: KernelBuilder, bits: int, words: Sequence[Reg]) -> list[Reg]:
    """The transposed words: element j of result i is element i of word j. There are as many words as elements in a
    word.
    """
    return Lanes(k, bits).planes(words, len(words))
