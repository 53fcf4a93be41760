"""The kernel that gives each row of a sparse tensor a scale: `ScaledRows`.

- First reading: each thread finds the largest magnitude of its spans of the row, t, t + threads, …
- Exchange: warps by shuffles, the CTA through shared memory.
- Second reading: select, scale, convert, store.
"""

from __future__ import annotations

from louver.isa.instruction import LANES
from louver.isa.metadata import GROUPS, WORD_BYTES, columns_per_load
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.library.streaming.build_streaming import Conversion, as_f32, divided, store
from louver.library.streaming.frame import Frame
from louver.library.streaming.lanes import assemble
from louver.library.streaming.place import Corner, Place, Stream
from louver.library.streaming.record import ScaledRows
from louver.library.streaming.words import BYTES
from louver.ptx.module import Address, Kernel, Reg

READ_AHEAD = 2
"""Spans that a thread loads at once in the first reading."""


class RowFrame(Frame):
    """A kernel under construction whose threads share a row."""

    def __init__(self, record: ScaledRows) -> None:
        self.warps = record.threads // LANES
        super().__init__(record, shared=4 * self.warps)
        k = self.k
        self.slots = k.shared_symbol()
        self.turn = record.threads // record.spans
        # Metadata is padded to whole loads.
        columns = columns_per_load(record.stored_type) if record.words else record.span
        self.spans = k.mul_lo(k.div(k.add(self.shape[1], columns - 1), columns), columns // record.span)

    def _thread_place(self) -> tuple[Reg, Reg]:
        return self.k.mov(0), self.thread

    def place(self, corner: Corner) -> Place:
        """The thread's first span of a row."""
        return Place.at(self.k, self.record, corner.entry, [corner.row], self.k.mov(self.thread), self.shape)


def build(record: ScaledRows) -> Kernel:
    """The kernel of a record. Its CTAs share the rows, with those that pad the metadata."""
    frame = RowFrame(record)
    with frame.tiles() as corner:
        scale = _scale(frame, corner)
        _convert(frame, corner, Conversion(frame.k, record, divided(frame.k, 1.0, scale)))
    return frame.k.finish()


def _scale(frame: RowFrame, corner: Corner) -> Reg:
    """The scale of a row, which one thread stores."""
    k, source, conversion = frame.k, frame.source(), Conversion(frame.k, frame.record)
    place, pair = frame.place(corner), k.mov(0)
    source.open(place)
    with k.loop(uniform=True) as spans:
        # More loads in flight than the second reading has, which finds the row in the cache.
        for words in [source.load(0, turn * frame.turn) for turn in range(READ_AHEAD)]:
            conversion.largest(words, pair)
        spans.repeat_if(_advance(frame, READ_AHEAD, place, source))
    largest = k.mov(0)
    for value in conversion.activated(pair):
        bits = k.reg("b32")
        k.emit(Bitcast("b32"), bits, value)
        _raise(frame, largest, bits)
    for distance in (16, 8, 4, 2, 1):
        _raise(frame, largest, k.shuffle_xor(largest, distance))
    mine = k.mad_lo(k.div(frame.thread, LANES), 4, frame.slots)
    k.store_shared(Address(mine), largest, guard=k.setp("eq", "u32", k.and_(frame.thread, LANES - 1), 0))
    k.barrier_sync(0, frame.record.threads)
    for warp in range(frame.warps):
        theirs = k.reg("b32")
        k.load_shared((theirs,), Address(frame.slots, 4 * warp))
        _raise(frame, largest, theirs)
    # The next row overwrites the slots.
    k.barrier_sync(0, frame.record.threads)
    scale, bits = conversion.scale_of(as_f32(k, largest)), k.reg("b32")
    k.emit(Bitcast("b32"), bits, scale)
    first = k.and_pred(k.setp("eq", "u32", frame.thread, 0), k.setp("lt", "u32", corner.row, frame.shape[0]))
    row = k.mad_lo(corner.entry, frame.shape[0], corner.row)
    k.store_global(Address(k.mad_wide(row, 4, frame.args["scale"])), bits, guard=first)
    return scale


def _convert(frame: RowFrame, corner: Corner, conversion: Conversion) -> None:
    k, source, natural = frame.k, frame.source(), frame.natural()
    place = frame.place(corner)
    at = _word(frame, corner, place.span) if frame.record.words else None
    for stream in (source, natural):
        stream.open(place)
    with k.loop(uniform=True) as spans:
        units = frame.groups.planes(conversion.before(source.load(0, 0)))
        indices = store(frame, natural, conversion, (0, 0), units)
        if at is not None:
            (word,) = assemble(k, [indices])
            k.store_global(Address(at), word, guard=k.setp("lt", "u32", place.span, frame.spans))
            # The threads of a CTA are whole words, so a thread keeps its place in them.
            k.add(at, frame.turn * WORD_BYTES, into=at)
        spans.repeat_if(_advance(frame, 1, place, source, natural))


def _word(frame: RowFrame, corner: Corner, span: Reg) -> Reg:
    """The address of the word of a span. A thread of an 8-bit product has the codes of one row in a word."""
    k, record = frame.k, frame.record
    side = k.and_(span, record.spans - 1)
    thread = k.mov(0)
    for bit, (rows, groups) in enumerate(record.map.thread):
        place = k.div(corner.row, rows) if rows else k.div(side, groups * record.spans // GROUPS)
        thread = k.or_(thread, k.shl(k.and_(place, 1), bit))
    blocks, words = (k.div(frame.args["row_tiles"], record.map.rows), k.div(frame.spans, record.spans))
    block = k.mad_lo(corner.entry, blocks, k.div(corner.row, record.map.rows))
    word = k.mad_lo(block, words, k.div(span, record.spans))
    return k.mad_wide(word, WORD_BYTES, k.mad_wide(thread, BYTES, frame.args["words"]))


def _advance(frame: RowFrame, turns: int, place: Place, *streams: Stream) -> Reg:
    """Move all threads `turns` spans on. Returns whether any of them has one there."""
    k = frame.k
    for stream in streams:
        stream.advance(turns * frame.turn)
    place.advance(k, frame.record, turns * frame.turn)
    return k.setp("lt", "u32", k.sub(place.span, frame.thread), frame.spans)


def _raise(frame: RowFrame, largest: Reg, bits: Reg) -> None:
    """The greater of two numbers that are not negative, by their bits."""
    frame.k.emit(Binary("max", "s32"), largest, largest, bits)
