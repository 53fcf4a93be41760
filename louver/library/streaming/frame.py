"""The frame of kernels that hold groups in registers: places in a tile, the loop over spans, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd

from louver.formats.codes import CODE_PARTS, FILLER
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.instruction import LANES
from louver.isa.memory import Load, Store
from louver.isa.metadata import GROUPS
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.streaming.groups import Groups
from louver.library.streaming.lanes import Byte, assemble
from louver.library.streaming.place import Base, Corner, Place, Rows, Stream, ahead
from louver.library.streaming.record import SPAN_BYTES, TILE_STEPS, Streaming
from louver.library.streaming.turned import SharedTile, Turned
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


WARPS = WARPGROUP_THREADS // LANES

Span = tuple[int, int]
"""Number of one of the thread's rows, and number of steps ahead of the thread's place."""


def _tile_bytes(record: Streaming) -> int:
    """Bytes of shared memory of a tile, for kernels that transpose tiles; else 0."""
    turns = any(access is not None and access.columns for access in (record.source, record.out))
    return SharedTile.bytes(record) if turns else 0


class Frame(Base):
    """A kernel under construction that holds groups in registers. rows, span: those of this thread in a tile.

    shared: bytes of shared memory beside a tile.
    """

    def __init__(self, record: Streaming, *, shared: int = 0) -> None:
        self.record = record
        super().__init__(record, shared=_tile_bytes(record) + shared)
        k = self.k
        row, self.span = self._thread_place()
        self.rows = tuple(k.add(row, offset) for offset in record.row_offsets)
        self.groups = Groups(k, record)

    def _thread_place(self) -> tuple[Reg, Reg]:
        k, record = self.k, self.record
        row, span = k.mov(0), k.mov(0)
        for bit, (rows, groups) in enumerate(record.map.thread):
            one = k.and_(k.shr(self.thread, bit), 1)
            row = k.mad_lo(one, rows, row) if rows else row
            span = k.mad_lo(one, groups * record.spans // GROUPS, span) if groups else span
        return row, span

    def steps(self, first: Reg, size: Reg) -> Reg:
        """The number of steps of a tile that have columns. Metadata is padded to whole tiles, and tiles that are
        transposed on output are written whole. Then all steps count.

        first: first column of the tile.
        size: columns of the matrix.
        """
        k, out, columns = self.k, self.record.out, self.record.spans * self.record.span
        if self.record.words is not None or (out is not None and out.columns):
            return k.mov(TILE_STEPS)
        return k.min(k.div(k.add(k.sub(size, first), columns - 1), columns), TILE_STEPS)

    # --- arrays ----------------------------------------------------------------------------------------------------
    def source(self) -> Rows | Turned:
        """The dense input array."""
        return self._dense("source")

    def out(self) -> Rows | Turned:
        """The dense output array."""
        return self._dense("out")

    def _dense(self, name: str) -> Rows | Turned:
        k, record, reading = self.k, self.record, name == "source"
        access = record.source if reading else record.out
        assert access is not None
        base, row, column, entry = (self.args[name + part] for part in ("", "_row", "_column", "_entry"))
        if not access.columns:
            return Rows(k, record, access, base, (row, column, entry))
        steps, mine = (column, entry), (self.thread, self.rows, self.span)
        return Turned(k, record, access, base, steps, self.shape, mine, reading, SharedTile(k, record))

    def natural(self) -> Natural:
        """The stored values and indices."""
        values, pitch = self.args.get("values"), self.args.get("pitch")
        return Natural(self.k, self.record, values, pitch, self.args["indices"], *self.shape)

    # --- the loop over spans ---------------------------------------------------------------------------------------
    def stream(self, corner: Corner, work: Callable[[Sequence[Span], Place], None], *streams: Stream) -> None:
        """Emit `work` for all spans of a tile. `streams` follow the place."""
        k = self.k
        rows = [k.add(corner.row, row) for row in self.rows]
        span = k.add(k.mul_lo(self.column_tile, TILE_STEPS * self.record.spans), self.span)
        for stream in streams:
            stream.begin(corner)
        place = Place.at(k, self.record, corner.entry, rows, span, self.shape)
        self.follow(place, self.steps(corner.column, self.shape[1]), work, *streams)
        if _tile_bytes(self.record):
            k.barrier_sync(0, WARPGROUP_THREADS)
        for stream in streams:
            stream.end(corner)

    def follow(self, place: Place, count: Reg, work: Callable[[Sequence[Span], Place], None], *streams: Stream) -> None:
        """Emit `work` for `count` steps from a place on, some spans at a time."""
        k, wide = self.k, 4 * self.record.span_words > SPAN_BYTES
        # A thread has no registers for more spans of wide groups.
        at_once = 1 if wide else 2 // len(self.rows)
        for stream in streams:
            stream.open(place)
        done = k.mov(0)
        with k.loop(uniform=True) as steps:
            work([(row, step) for step in range(at_once) for row in range(len(self.rows))], place)
            for stream in streams:
                stream.advance(at_once)
            place.advance(k, self.record, at_once)
            k.add(done, at_once, into=done)
            steps.repeat_if(k.setp("lt", "u32", done, count))

    def groups_left(self, place: Place, span: Span) -> Reg:
        """The number of groups of a row from a span on; 0 outside the matrix."""
        k, m = self.k, self.record.pattern.m
        row, step = span
        left = k.sub(place.left[row], ahead(self.record, step))
        left = k.selp(left, 0, k.setp("gt", "s32", left, 0))
        return k.div(k.add(left, m - 1), m)

    # --- counts ----------------------------------------------------------------------------------------------------
    def leave_tally(self, tally: Sequence[Reg]) -> None:
        """Add up the counts of the threads of each warp, then those of the warps, and add them to the counters."""
        k, count = self.k, len(tally)
        base = k.add(k.shared_symbol(), _tile_bytes(self.record))
        lane, warp = k.and_(self.thread, LANES - 1), k.shr(self.thread, 5)
        mine = k.mad_lo(warp, 4 * count, base)
        for number, counted in enumerate(tally):
            total = counted
            for distance in (16, 8, 4, 2, 1):
                total = k.add(total, k.shuffle_xor(total, distance))
            first = k.setp("eq", "u32", lane, 0)
            k.store_shared(Address(mine, 4 * number), total, guard=first)
        k.barrier_sync(0, WARPGROUP_THREADS)
        with k.if_(k.setp("lt", "u32", self.thread, count)):
            theirs = k.mad_lo(self.thread, 4, base)
            total = k.mov(0)
            for number in range(WARPS):
                of_warp = k.reg("b32")
                k.load_shared((of_warp,), Address(theirs, 4 * count * number))
                k.add(total, of_warp, into=total)
            self.leave_count(self.thread, total)
