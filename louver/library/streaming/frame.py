"""The frame of kernels that hold groups in registers: places in a tile, the loop over spans, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from louver.isa.instruction import LANES
from louver.isa.metadata import GROUPS
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.streaming.base import Base
from louver.library.streaming.groups import Groups
from louver.library.streaming.natural import Natural
from louver.library.streaming.place import Corner, Place, Rows, Stream, ahead
from louver.library.streaming.record import SPAN_BYTES, TILE_STEPS, Streaming
from louver.library.streaming.turned import Tile, Turned
from louver.ptx.module import Address, Reg

WARPS = WARPGROUP_THREADS // LANES

Span = tuple[int, int]
"""Number of one of the thread's rows, and number of steps ahead of the thread's place."""


def _tile_bytes(record: Streaming) -> int:
    """Bytes of shared memory of a tile, for kernels that transpose tiles; else 0."""
    turns = any(access is not None and access.columns for access in (record.source, record.out))
    return Tile.bytes(record) if turns else 0


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
        return Turned(k, record, access, base, steps, self.shape, mine, reading, Tile(k, record))

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
