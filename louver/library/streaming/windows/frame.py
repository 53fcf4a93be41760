"""The frame of kernels on windows: a thread's columns of a tile, its accesses down the columns, and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd

from louver.formats.dtypes import ElementType
from louver.library.streaming.lanes import Lanes
from louver.library.streaming.place import Base, Corner, loaded, put
from louver.library.streaming.record import Access
from louver.library.streaming.windows.record import Windowed
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg


@dataclass(frozen=True, slots=True)
class Cells:
    """An array that a thread reads or writes in blocks, from top to bottom. A block is some rows of one column, or one
    row of the columns of an access. Its words hold neighbouring elements side by side.

    rows: rows of a block.
    at: register with the address of the next block.
    row_step: bytes from one row to the next.
    left: register with the number of rows from the next block on; 0 or less outside the window. Only `go` changes it.
    """

    k: KernelBuilder
    type: ElementType
    access: Access
    rows: int
    at: Reg
    row_step: Reg
    left: Reg

    def load(self, count: int) -> list[list[Reg]]:
        """The words of the next `count` blocks; zeros outside the window."""
        return [loaded(self.k, self._accesses(number), self.access.width) for number in range(count)]

    def store(self, blocks: Sequence[Sequence[Reg]]) -> None:
        """Write the next blocks; nothing outside the window."""
        for number, words in enumerate(blocks):
            put(self.k, self._accesses(number), self.access.width, words)

    def go(self, rows: int, beyond: int) -> None:
        """Advance by `rows` rows. beyond: how many of them come after the blocks that were accessed since the last
        `go`.
        """
        k = self.k
        k.sub(self.left, rows, into=self.left)
        if beyond:
            k.add(self.at, k.mul_lo(self.row_step, beyond), into=self.at)

    def _accesses(self, number: int) -> Iterator[tuple[Address, Reg]]:
        k = self.k
        rows = self.access.width // self.type.bytes if self.access.columns else 1
        for row in range(number * self.rows, (number + 1) * self.rows, rows):
            yield Address(self.at), k.setp("gt", "s32", self.left, row)
            k.add(self.at, self.access.width if self.access.columns else self.row_step, into=self.at)


@dataclass(frozen=True, slots=True)
class Share:
    """A thread's part of the work on some columns.

    number: number of its first column.
    first: row of its first block.
    busy: whether the thread has work.
    apart: rows from its first blocks to its next ones.
    """

    number: Reg
    first: Reg | int
    busy: Reg
    apart: int


class Frame(Base):
    """A kernel under construction. keys, flags, lists: addresses of arrays in shared memory, with 32 bits for each
    column.
    """

    def __init__(self, record: Windowed) -> None:
        self.record = record
        super().__init__(record, shared=3 * 4 * record.columns)
        self.keys = self.k.shared_symbol()
        self.flags = self.k.add(self.keys, 4 * record.columns)
        self.lists = self.k.add(self.flags, 4 * record.columns)
        m, n = record.pattern.m, record.pattern.n
        self.groups = self.k.div(self.k.add(self.shape[1], m - 1), m)
        self.kept = self.k.mul_lo(self.groups, n)

    @property
    def lanes(self) -> Lanes:
        """Operations on elements side by side."""
        return Lanes(self.k, self.record.type.bits)

    @contextmanager
    def each(self, count: int) -> Generator[Reg]:
        """A loop over the numbers from 0 to `count` - 1, divided among the threads of the CTA."""
        k = self.k
        number = k.mov(self.thread)
        with k.while_(lambda: k.setp("lt", "u32", number, count)):
            yield number
            k.add(number, self.record.threads, into=number)

    # --- shared memory ---------------------------------------------------------------------------------------------
    def read(self, array: Reg, number: Reg, count: int = 1) -> list[Reg]:
        """`count` consecutive numbers of an array in shared memory. number: first index, a multiple of `count`."""
        found = self.k.regs("b32", count)
        self.k.load_shared(found, Address(self.k.mad_lo(number, 4, array)))
        return found

    def write(self, array: Reg, number: Reg, values: Sequence[Reg], guard: Reg | None = None) -> None:
        """Write consecutive numbers to an array in shared memory, from index `number` on."""
        self.k.store_shared(Address(self.k.mad_lo(number, 4, array)), values, guard=guard)

    @contextmanager
    def group(self, array: Reg, group: Reg) -> Generator[tuple[Reg, list[Reg]]]:
        """A loop over the columns of a group of the tile, some at a time. Yields the first column's place in the group,
        and the numbers of the array for these columns.
        """
        k, m = self.k, self.record.pattern.m
        step = gcd(m, 4)
        vectors = max(count for count in range(1, 6) if m // step % count == 0)
        at, place = k.mad_lo(group, 4 * m, array), k.mov(0)
        with k.loop() as columns:
            found: list[Reg] = []
            for number in range(vectors):
                some = k.regs("b32", step)
                k.load_shared(some, Address(at, 4 * step * number))
                found += some
            yield place, found
            k.add(at, 4 * len(found), into=at)
            k.add(place, len(found), into=place)
            columns.repeat_if(k.setp("lt", "u32", place, m))

    def divided(self, number: Reg, by: int) -> tuple[Reg, Reg]:
        """Quotient and remainder by a constant, without a division. number: number of a thread, a column or a slot in
        the tile.
        """
        k = self.k
        # Numbers and divisors are at most 2^10. So the product fits in 32 bits, and the quotient's error is below
        # 2^-10.
        quotient = k.shr(k.mul_lo(number, -(-(1 << 21) // by)), 21)
        return quotient, k.sub(number, k.mul_lo(quotient, by))

    def in_group(self, column: Reg) -> tuple[Reg, Reg]:
        """The group of a column of the tile, and the column's place in the group."""
        return self.divided(column, self.record.pattern.m)

    # --- loops down the columns ------------------------------------------------------------------------------------
    def height(self, corner: Corner) -> Reg:
        """Rows of the window."""
        return self.k.min(self.k.sub(self.shape[0], corner.row), self.record.height)

    def blocks(self) -> Share:
        """The part of a thread that processes the columns of its blocks, all rows in order."""
        k, record = self.k, self.record
        number = k.mul_lo(self.thread, record.block_columns)
        return Share(number, 0, k.setp("lt", "u32", number, record.columns), self._batch)

    @contextmanager
    def shares(self, across: int) -> Generator[Share]:
        """A loop over the parts of a thread in the work on `across` columns. If there are more threads than columns,
        several threads share a column.
        """
        k, threads = self.k, self.record.threads
        phases = threads // across
        if phases:
            phase, number = self.divided(self.thread, across)
            busy = k.setp("lt", "u32", phase, phases)
            yield Share(number, k.mul_lo(phase, self._batch), busy, phases * self._batch)
            return
        number = k.mov(self.thread)
        with k.loop(uniform=True) as passes:
            yield Share(k.min(number, across - 1), 0, k.setp("lt", "u32", number, across), self._batch)
            k.add(number, threads, into=number)
            passes.repeat_if(k.setp("lt", "u32", k.sub(number, self.thread), across))

    def down(self, corner: Corner, share: Share, cells: Sequence[Cells], work: Callable[[], None]) -> None:
        """Emit `work` for all blocks of the thread in some cells, `at_once` blocks at a time."""
        k, height = self.k, self.height(corner)
        done = k.mov(0)
        with k.loop() as rows:
            work()
            for each in cells:
                each.go(share.apart, share.apart - self._batch)
            k.add(done, share.apart, into=done)
            rows.repeat_if(k.setp("lt", "u32", done, height))

    def dense(self, name: str, corner: Corner, share: Share, column: Reg, *, alone: bool = False) -> Cells:
        """A dense array from a column of the tile on. alone: only this column, without its neighbours."""
        k, record = self.k, self.record
        access = record.source if name == "source" else record.out
        assert access is not None
        if alone and not access.columns:
            access = Access(record.type.bytes)
        base, row_step, column_step, entry_step = (self.args[name + part] for part in ("", "_row", "_column", "_entry"))
        place = k.add(corner.column, column)
        at = k.add(base, k.mul_lo(k.widen_u64(corner.entry), entry_step))
        at = k.add(at, k.mul_lo(k.widen_u64(k.add(corner.row, share.first)), row_step))
        at = k.add(at, k.mul_lo(k.widen_u64(place), column_step))
        inside = k.and_pred(share.busy, k.setp("lt", "u32", place, self.shape[1]))
        return Cells(k, record.type, access, record.block_rows, at, row_step, self._left(corner, share, inside))

    def values(self, corner: Corner, share: Share, slot: Reg, there: Reg) -> Cells:
        """The stored values of a slot of the tile. there: whether there is such a slot."""
        k, record = self.k, self.record
        row = k.mad_lo(corner.entry, self.shape[0], k.add(corner.row, share.first))
        place = k.add(self.first_slot(), slot)
        at = k.mad_wide(place, record.type.bytes, self.args["values"])
        at = k.add(at, k.mul_lo(k.widen_u64(row), self.args["pitch"]))
        inside = k.and_pred(k.and_pred(share.busy, there), k.setp("lt", "u32", place, self.kept))
        access = Access(record.type.bytes)
        return Cells(
            k, record.type, access, record.block_rows, at, self.args["pitch"], self._left(corner, share, inside)
        )

    @property
    def _batch(self) -> int:
        """Rows that a thread processes at a time."""
        return self.record.at_once * self.record.block_rows

    def _left(self, corner: Corner, share: Share, inside: Reg) -> Reg:
        return self.k.selp(self.k.sub(self.height(corner), share.first), 0, inside)

    # --- indices ---------------------------------------------------------------------------------------------------
    def first_slot(self) -> Reg:
        """The number, in a row, of the tile's first slot."""
        return self.k.mul_lo(self.column_tile, self.record.slots)

    def list_at(self, corner: Corner) -> tuple[Reg, Reg]:
        """The address of the tile's first byte of indices, and the number of bytes of the list from this byte on."""
        k, record = self.k, self.record
        bits = record.index_bits
        row_bytes = k.shr(k.add(k.mul_lo(self.kept, bits), 7), 3)
        window = k.mad_lo(corner.entry, self.args["row_tiles"], corner.number)
        first = k.mul_lo(self.column_tile, record.slots * bits // 8)
        at = k.add(k.mad_wide(window, row_bytes, self.args["indices"]), k.widen_u64(first))
        return at, k.sub(row_bytes, first)
