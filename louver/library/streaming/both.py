"""The kernel that compresses both orientations of a transposable mask: `Both`.

A thread takes a square of 8 × 8 elements at a time: eight threads side by side, so that a row of a tile is 64 columns. It stores the
square's rows where they belong, and its columns to shared memory, compressed. From there whole lines of the other orientation go out.
A chunk of 16 bytes of a column lies at its place exclusive-or the number of its square, so that neither access meets itself in a bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from louver.formats.transposable import SIDE
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.memory import Load
from louver.library.streaming import squares
from louver.library.streaming.base import Base
from louver.library.streaming.lanes import Lanes
from louver.library.streaming.place import Corner, loaded, put
from louver.library.streaming.record import VECTOR_BYTES, Both
from louver.library.streaming.squares import SQUARE
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Reg

AT_ONCE = 8
"""Accesses that a thread has under way while columns move."""


def build(record: Both) -> Kernel:
    """The kernel of a record. Its grid is tiles of columns × at most as many tiles below each other as there are."""
    frame = Frame(record)
    k = frame.k
    rows, columns = record.tile
    apart = record.threads // (columns // SQUARE)
    with frame.tiles() as corner:
        below = k.mov(_quotient(k, frame.thread, columns // SQUARE))
        place = _Place.at(frame, corner, below)
        with k.loop(uniform=True) as passes:
            _compress(frame, place, below)
            place.go(frame, SQUARE * apart)
            k.add(below, apart, into=below)
            passes.repeat_if(k.setp("lt", "u32", below, rows // SQUARE))
        frame.meet()
        _move(frame, corner, "values", record.column_bytes, VECTOR_BYTES)
        _move(frame, corner, "indices", record.list_bytes, record.indices)
        frame.meet()
    return k.finish()


class Frame(Base):
    """A kernel under construction. across: the number of this thread's squares in a tile. values, indices: of columns, in shared memory."""

    def __init__(self, record: Both) -> None:
        self.record = record
        columns = record.tile[1]
        super().__init__(record, shared=columns * (record.column_bytes + record.list_bytes))
        self.across = self.k.and_(self.thread, columns // SQUARE - 1)
        self.values = self.k.shared_symbol()
        self.indices = self.k.add(self.values, columns * record.column_bytes)

    def meet(self) -> None:
        """Wait for all threads of the CTA."""
        self.k.barrier_sync(0, self.record.threads)

    def mark(self, square: Reg, nbytes: int) -> Reg:
        """Exclusive-or of a byte's place in a column of so many bytes. square: the number of the column's, of eight."""
        return self.k.mul_lo(square, min(VECTOR_BYTES, nbytes // SQUARE))

    def list_bytes(self, size: Reg) -> Reg:
        """Bytes of a row's indices."""
        return _quotient(self.k, self.k.add(size, SQUARE - 1), SQUARE)


@dataclass(frozen=True, slots=True)
class _Place:
    """The square that is next, in registers of its own: addresses of its first element, its first stored value along rows, and its indices.

    lefts: rows that there are from its first on, for each access side by side, none or less outside of the matrix.
    """

    source: Reg
    values: Reg
    indices: Reg
    lefts: list[Reg]

    @classmethod
    def at(cls, frame: Frame, corner: Corner, below: Reg) -> _Place:
        """That of this thread in a tile. below: squares of the tile above it."""
        k, record, args, size = frame.k, frame.record, frame.args, frame.record.type.bytes
        row = k.mad_lo(below, SQUARE, corner.row)
        column = k.mad_lo(frame.across, SQUARE, corner.column)
        source = k.add(args["source"], k.mul_lo(k.widen_u64(corner.entry), args["source_entry"]))
        source = k.add(source, k.mul_lo(k.widen_u64(row), args["source_row"]))
        source = k.add(source, k.mul_lo(k.widen_u64(column), args["source_column"]))
        number = k.mad_lo(corner.entry, frame.shape[0], row)
        values = k.mad_wide(_quotient(k, column, 2), size, args["values"])
        values = k.add(values, k.mul_lo(k.widen_u64(number), args["pitch"]))
        indices = k.add(args["indices"], k.widen_u64(_quotient(k, column, SQUARE)))
        indices = k.mad_wide(number, frame.list_bytes(frame.shape[1]), indices)
        left, columns_left = k.sub(frame.shape[0], row), k.sub(frame.shape[1], column)
        offsets = range(0, SQUARE, record.source.width // size)
        lefts = [k.selp(left, 0, k.setp("gt", "s32", columns_left, offset)) for offset in offsets]
        return cls(source, values, indices, lefts)

    def go(self, frame: Frame, rows: int) -> None:
        """Go so many rows down."""
        k, args = frame.k, frame.args
        k.add(self.source, k.mul_lo(args["source_row"], rows), into=self.source)
        k.add(self.values, k.mul_lo(args["pitch"], rows), into=self.values)
        k.add(self.indices, k.mul_wide(frame.list_bytes(frame.shape[1]), rows), into=self.indices)
        for left in self.lefts:
            k.sub(left, rows, into=left)

    def load(self, frame: Frame) -> list[list[Reg]]:
        """The rows of the square; zeros outside of the matrix."""
        k, width = frame.k, frame.record.source.width
        apart = len(self.lefts) == SQUARE
        rows: list[list[Reg]] = []
        row_at = self.source
        for number in range(SQUARE):
            at, accesses = row_at, list[tuple[Address, Reg]]()
            for offset, left in enumerate(self.lefts):
                at = k.add(at, frame.args["source_column"]) if apart and offset else at
                accesses.append((Address(at, 0 if apart else offset * width), k.setp("gt", "s32", left, number)))
            rows.append(loaded(k, accesses, width))
            row_at = k.add(row_at, frame.args["source_row"])
        return rows


def _compress(frame: Frame, here: _Place, below: Reg) -> None:
    """Compress a square both ways: its rows to global memory, its columns to shared memory."""
    k, record = frame.k, frame.record
    element, lanes = record.type, Lanes(k, record.type.bits)
    rows = here.load(frame)

    bits = squares.kept(lanes, element, rows)
    zero = squares.has_zero(lanes, rows)
    with k.if_(zero):
        squares.clear(lanes, rows, bits)
    turned = squares.turned(k, bits)
    with k.if_(zero):
        # Slots that no element takes but +0.0 go to the lowest ones, along rows and along columns.
        for some in (*bits, *turned):
            k.mov(squares.filled(k, some), into=some)

    values, indices = here.values, here.indices
    step = k.widen_u64(frame.list_bytes(frame.shape[1]))
    for half, some in enumerate(bits):
        codes = squares.codes(k, some)
        for number, words in enumerate(squares.stored(lanes, rows[half * SIDE : (half + 1) * SIDE], codes)):
            there = k.setp("gt", "s32", here.lefts[0], half * SIDE + number)
            k.store_global(Address(values), words, guard=there)
            k.store_byte(Address(indices), _byte(k, codes, number), guard=there)
            values, indices = k.add(values, frame.args["pitch"]), k.add(indices, step)

    first = k.mul_lo(frame.across, SQUARE)
    at = k.xor(k.mul_lo(below, SIDE * element.bytes), frame.mark(frame.across, record.column_bytes))
    at = k.add(k.mad_lo(first, record.column_bytes, frame.values), at)
    list_at = k.xor(below, frame.mark(frame.across, record.list_bytes))
    list_at = k.add(k.mad_lo(first, record.list_bytes, frame.indices), list_at)
    columns = squares.columns(lanes, rows)
    for half, some in enumerate(turned):
        codes = squares.codes(k, some)
        for number, words in enumerate(squares.stored(lanes, columns[half * SIDE : (half + 1) * SIDE], codes)):
            mine = half * SIDE + number
            k.store_shared(Address(at, mine * record.column_bytes), words)
            k.emit(StoreByte("shared"), Address(list_at, mine * record.list_bytes), _byte(k, codes, number))


def _move(frame: Frame, corner: Corner, name: Literal["values", "indices"], nbytes: int, width: int) -> None:
    """Move so many bytes of each column of the tile from shared memory to the other orientation, some at once."""
    k, record = frame.k, frame.record
    rows, columns = record.tile
    there = k.min(k.sub(frame.shape[0], corner.row), rows)
    if name == "values":
        source, pitch = frame.values, frame.args["turned_pitch"]
        end = k.mul_lo(_quotient(k, k.add(there, SIDE - 1), SIDE), 2 * record.type.bytes)
    else:
        source, pitch = frame.indices, k.widen_u64(frame.list_bytes(frame.shape[0]))
        end = frame.list_bytes(there)
    line = k.mul_lo(k.widen_u64(k.mad_lo(corner.entry, frame.shape[1], corner.column)), pitch)
    base = k.mad_wide(corner.number, nbytes, k.add(frame.args[f"turned_{name}"], line))
    columns_left, per_column = k.sub(frame.shape[1], corner.column), nbytes // width
    across = record.threads // per_column
    first = _quotient(k, frame.thread, per_column)
    byte = k.mul_lo(k.sub(frame.thread, k.mul_lo(first, per_column)), width)
    inside = k.selp(columns_left, 0, k.setp("lt", "u32", byte, end))
    to = k.add(k.add(base, k.mul_lo(k.widen_u64(first), pitch)), k.widen_u64(byte))
    lines, step = k.mad_lo(first, nbytes, source), k.mul_lo(pitch, across)
    for start in range(0, columns, across * AT_ONCE):
        moved: list[Sequence[Reg]] = []
        places = range(start, min(start + across * AT_ONCE, columns), across)
        for place in places:
            mark = frame.mark(_quotient(k, k.add(first, place), SQUARE), nbytes)
            moved.append(_read(k, Address(k.add(lines, k.xor(byte, mark)), place * nbytes), width))
        for place, words in zip(places, moved, strict=True):
            # Rows of values are followed by room up to 16 bytes.
            put(k, [(Address(to), k.setp("gt", "u32", inside, k.add(first, place)))], width, words)
            to = k.add(to, step)


def _read(k: KernelBuilder, address: Address, width: int) -> Sequence[Reg]:
    """The words of some bytes in shared memory."""
    words = k.regs("b32", max(1, width // 4))
    if width >= 4:
        k.load_shared(words, address)
    else:
        piece = k.reg("b16")
        k.emit(LoadByte("shared") if width == 1 else Load("shared", "b16"), piece, address)
        k.emit(ConvertInteger("u32", "u16"), words[0], piece)
    return words


def _byte(k: KernelBuilder, word: Reg, number: int) -> Reg:
    return k.low_half(k.shr(word, 8 * number) if number else word)


def _quotient(k: KernelBuilder, number: Reg, by: int) -> Reg:
    """A number by a power of two: the assembler divides by constants, too, with a reciprocal."""
    return k.shr(number, by.bit_length() - 1)
