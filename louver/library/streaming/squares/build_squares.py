"""The kernels of transposable masks: `Squared`.

A thread processes one square of 8 × 8 elements at a time. Eight threads are side by side, so a tile has 64 columns.

A compressing kernel stores the compressed rows of a square to global memory, and its compressed columns to shared
memory. Then it copies whole lines of columns to global memory. In shared memory, the offset of a 16-byte chunk in its
column is the exclusive or of its place and the number of its square. This avoids bank conflicts of both accesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from louver.formats.select import SIDE
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.memory import Load
from louver.library.streaming.lanes import Lanes
from louver.library.streaming.place import Base, Corner, joined, loaded, put
from louver.library.streaming.record import VECTOR_BYTES, Access
from louver.library.streaming.squares import bits as squares
from louver.library.streaming.squares.bits import SQUARE
from louver.library.streaming.squares.record import Squared
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Kernel, Reg

AT_ONCE = 8
"""Accesses in flight of a thread while columns are copied."""


def build(record: Squared) -> Kernel:
    """The kernel of a record. Its grid is columns of tiles × at most the rows of tiles of all entries."""
    frame = Frame(record)
    {"prune": _prune, "compress": _compress, "turn": _turn}[record.kind](frame)
    return frame.k.finish()


class Frame(Base):
    """A kernel under construction. across: the column of squares, in the tile, of this thread."""

    def __init__(self, record: Squared) -> None:
        self.record = record
        columns = record.tile[1]
        shared = columns * (record.column_bytes + record.list_bytes) if record.turns else 0
        super().__init__(record, shared=shared)
        self.lanes = Lanes(self.k, record.type.bits)
        self.across = self.k.and_(self.thread, columns // SQUARE - 1)

    def down(self, work: Callable[[Reg], None], *walked: _Dense | _Along) -> None:
        """Emit `work` for all squares of a thread in a tile. Its argument is the row of squares in the tile.

        walked: arrays that advance with the squares.
        """
        k, (rows, columns) = self.k, self.record.tile
        apart = self.record.threads // (columns // SQUARE)
        below = self.first()
        with k.loop(uniform=True) as passes:
            work(below)
            for each in walked:
                each.go(SQUARE * apart)
            k.add(below, apart, into=below)
            passes.repeat_if(k.setp("lt", "u32", below, rows // SQUARE))

    def first(self) -> Reg:
        """The row of squares, in the tile, of the thread's first square."""
        return self.k.mov(_quotient(self.k, self.thread, self.record.tile[1] // SQUARE))

    def place(self, corner: Corner) -> tuple[Reg, Reg]:
        """The first row and column of the thread's first square."""
        k = self.k
        return k.mad_lo(self.first(), SQUARE, corner.row), k.mad_lo(self.across, SQUARE, corner.column)

    def mark(self, square: Reg, nbytes: int) -> Reg:
        """The mask of the exclusive or of offsets in a column of `nbytes` bytes. square: number of the column's square,
        0 to 7.
        """
        return self.k.mul_lo(square, min(VECTOR_BYTES, nbytes // SQUARE))

    def list_bytes(self, size: Reg) -> Reg:
        """Bytes of indices of a row. size: elements of the row."""
        return _quotient(self.k, self.k.add(size, SQUARE - 1), SQUARE)


@dataclass(frozen=True, slots=True)
class _Dense:
    """A dense array at the thread's next square.

    at: register with the address of the square.
    lefts: for each access of a row, a register with the number of rows from the square's first row on; 0 or less
        outside the matrix.
    """

    frame: Frame
    name: str
    access: Access
    at: Reg
    lefts: list[Reg]

    @classmethod
    def of(cls, frame: Frame, name: str, access: Access | None, corner: Corner) -> _Dense:
        """The array at the thread's first square of a tile."""
        assert access is not None
        k, args = frame.k, frame.args
        row, column = frame.place(corner)
        at = k.add(args[name], k.mul_lo(k.widen_u64(corner.entry), args[f"{name}_entry"]))
        at = k.add(at, k.mul_lo(k.widen_u64(row), args[f"{name}_row"]))
        at = k.add(at, k.mul_lo(k.widen_u64(column), args[f"{name}_column"]))
        left, columns_left = k.sub(frame.shape[0], row), k.sub(frame.shape[1], column)
        offsets = range(0, SQUARE, access.width // frame.record.type.bytes)
        lefts = [k.selp(left, 0, k.setp("gt", "s32", columns_left, offset)) for offset in offsets]
        return cls(frame, name, access, at, lefts)

    def go(self, rows: int) -> None:
        """Advance by `rows` rows."""
        k = self.frame.k
        k.add(self.at, k.mul_lo(self.frame.args[f"{self.name}_row"], rows), into=self.at)
        for left in self.lefts:
            k.sub(left, rows, into=left)

    def load(self) -> list[list[Reg]]:
        """The rows of the square; zeros outside the matrix."""
        return [loaded(self.frame.k, accesses, self.access.width) for accesses in self._accesses()]

    def store(self, rows: Sequence[Sequence[Reg]]) -> None:
        """Write the rows of the square; nothing outside the matrix."""
        for accesses, words in zip(self._accesses(), rows, strict=True):
            put(self.frame.k, accesses, self.access.width, words)

    def _accesses(self) -> list[list[tuple[Address, Reg]]]:
        k, args, apart = self.frame.k, self.frame.args, len(self.lefts) == SQUARE
        rows: list[list[tuple[Address, Reg]]] = []
        row_at = self.at
        for number in range(SQUARE):
            at = row_at
            rows.append([])
            for offset, left in enumerate(self.lefts):
                at = k.add(at, args[f"{self.name}_column"]) if apart and offset else at
                place = Address(at, 0 if apart else offset * self.access.width)
                rows[-1].append((place, k.setp("gt", "s32", left, number)))
            row_at = k.add(row_at, args[f"{self.name}_row"])
        return rows


@dataclass(frozen=True, slots=True)
class _Along:
    """The stored values and indices along rows: registers with their addresses at the thread's next square."""

    frame: Frame
    values: Reg
    indices: Reg

    @classmethod
    def of(cls, frame: Frame, corner: Corner) -> _Along:
        """The addresses at the thread's first square of a tile."""
        k, args = frame.k, frame.args
        row, column = frame.place(corner)
        number = k.mad_lo(corner.entry, frame.shape[0], row)
        values = k.mad_wide(_quotient(k, column, 2), frame.record.type.bytes, args["values"])
        values = k.add(values, k.mul_lo(k.widen_u64(number), args["pitch"]))
        indices = k.add(args["indices"], k.widen_u64(_quotient(k, column, SQUARE)))
        return cls(frame, values, k.mad_wide(number, frame.list_bytes(frame.shape[1]), indices))

    def go(self, rows: int) -> None:
        """Advance by `rows` rows."""
        k, frame = self.frame.k, self.frame
        k.add(self.values, k.mul_lo(frame.args["pitch"], rows), into=self.values)
        k.add(self.indices, k.mul_wide(frame.list_bytes(frame.shape[1]), rows), into=self.indices)

    def load(self, left: Reg) -> tuple[list[list[Reg]], tuple[Reg, Reg]]:
        """The stored values of the rows of the square, and the codes of rows 0 to 3 and of rows 4 to 7. Rows outside the
        matrix have zeros, and codes without elements. left: rows of the matrix from the square's first row on.
        """
        k, frame = self.frame.k, self.frame
        values, indices = self.values, self.indices
        step = k.widen_u64(frame.list_bytes(frame.shape[1]))
        rows: list[list[Reg]] = []
        lists: list[Reg] = []
        for number in range(SQUARE):
            there = k.setp("gt", "s32", left, number)
            rows.append([k.mov(0) for _ in range(SIDE * frame.record.type.bytes // 4)])
            k.load_global(rows[-1], Address(values), guard=there, read_only=True)
            lists.append(k.mov(squares.NOTHING, kind="b16"))
            k.emit(LoadByte(), lists[-1], Address(indices), guard=there)
            values, indices = k.add(values, frame.args["pitch"]), k.add(indices, step)
        upper, lower = joined(k, lists, 1)
        return rows, (upper, lower)

    def store(self, rows: Sequence[Sequence[Reg]], bits: squares.Bits, left: Reg) -> None:
        """Store the kept elements of the rows of the square, compressed. left: rows of the matrix from its first row
        on.
        """
        k, frame = self.frame.k, self.frame
        values, indices = self.values, self.indices
        step = k.widen_u64(frame.list_bytes(frame.shape[1]))
        for half, some in enumerate(bits):
            codes = squares.codes(k, some)
            for number, words in enumerate(squares.stored(frame.lanes, rows[half * SIDE : (half + 1) * SIDE], codes)):
                there = k.setp("gt", "s32", left, half * SIDE + number)
                k.store_global(Address(values), words, guard=there)
                k.store_byte(Address(indices), _byte(k, codes, number), guard=there)
                values, indices = k.add(values, frame.args["pitch"]), k.add(indices, step)


def _prune(frame: Frame) -> None:
    record = frame.record
    with frame.tiles() as corner:
        source = _Dense.of(frame, "source", record.source, corner)
        out = _Dense.of(frame, "out", record.out, corner)

        def work(below: Reg) -> None:
            rows = source.load()
            out.store(squares.masked(frame.lanes, rows, squares.kept(frame.lanes, record.type, rows)))

        frame.down(work, source, out)


def _compress(frame: Frame) -> None:
    record, lanes = frame.record, frame.lanes
    with frame.tiles() as corner:
        source, along = _Dense.of(frame, "source", record.source, corner), _Along.of(frame, corner)

        def work(below: Reg) -> None:
            rows = source.load()
            bits, turned = _kept_both_ways(frame, rows)
            along.store(rows, bits, source.lefts[0])
            _store_columns(frame, squares.columns(lanes, rows), turned, below)

        frame.down(work, source, along)
        frame.meet()
        _move(frame, corner, "values", record.column_bytes, VECTOR_BYTES)
        _move(frame, corner, "indices", record.list_bytes, record.indices)
        frame.meet()


def _turn(frame: Frame) -> None:
    k, record, lanes = frame.k, frame.record, frame.lanes
    with frame.tiles() as corner:
        along = _Along.of(frame, corner)
        row, column = frame.place(corner)
        inside = k.setp("lt", "u32", column, frame.shape[1])
        left = k.selp(k.sub(frame.shape[0], row), 0, inside)

        def work(below: Reg) -> None:
            values, codes = along.load(left)
            rows = [squares.expanded(lanes, words, codes[at // SIDE], at % SIDE) for at, words in enumerate(values)]
            bits = squares.bits_of(k, codes[0]), squares.bits_of(k, codes[1])
            upper, lower = (squares.filled(k, some) for some in squares.turned(k, bits))
            _store_columns(frame, squares.columns(lanes, rows), (upper, lower), below)
            k.sub(left, SQUARE * record.threads // (record.tile[1] // SQUARE), into=left)

        frame.down(work, along)
        frame.meet()
        _move(frame, corner, "values", record.column_bytes, VECTOR_BYTES)
        frame.meet()


def _kept_both_ways(frame: Frame, rows: Sequence[Sequence[Reg]]) -> tuple[squares.Bits, squares.Bits]:
    """The bits of the elements with slots, along rows and along columns. If the square has a +0.0, elements that are
    not kept may fill slots. They are then set to +0.0 in `rows`.
    """
    k, lanes = frame.k, frame.lanes
    bits = squares.kept(lanes, frame.record.type, rows)
    zero = squares.has_zero(lanes, rows)
    with k.if_(zero):
        left = squares.masked(lanes, rows, bits)
        for words, others in zip(rows, left, strict=True):
            for word, other in zip(words, others, strict=True):
                k.mov(other, into=word)
        for some, others in zip(bits, squares.nonzero(lanes, rows), strict=True):
            k.mov(others, into=some)
    turned = squares.turned(k, bits)
    with k.if_(zero):
        # Free slots take the lowest elements without a slot, along rows and along columns.
        for some in (*bits, *turned):
            k.mov(squares.filled(k, some), into=some)
    return bits, turned


def _store_columns(frame: Frame, columns: Sequence[Sequence[Reg]], bits: squares.Bits, below: Reg) -> None:
    """Store the kept elements of the columns of a square to shared memory, compressed. below: row of squares in the
    tile.
    """
    k, record = frame.k, frame.record
    values, indices = _shared(frame)
    first = k.mul_lo(frame.across, SQUARE)
    at = k.xor(k.mul_lo(below, SIDE * record.type.bytes), frame.mark(frame.across, record.column_bytes))
    at = k.add(k.mad_lo(first, record.column_bytes, values), at)
    list_at = k.xor(below, frame.mark(frame.across, record.list_bytes))
    list_at = k.add(k.mad_lo(first, record.list_bytes, indices), list_at)
    for half, some in enumerate(bits):
        codes = squares.codes(k, some)
        for number, words in enumerate(squares.stored(frame.lanes, columns[half * SIDE : (half + 1) * SIDE], codes)):
            mine = half * SIDE + number
            k.store_shared(Address(at, mine * record.column_bytes), words)
            if record.kind == "compress":
                k.emit(StoreByte("shared"), Address(list_at, mine * record.list_bytes), _byte(k, codes, number))


def _shared(frame: Frame) -> tuple[Reg, Reg]:
    """The addresses of the values and the indices of columns in shared memory."""
    values = frame.k.shared_symbol()
    return values, frame.k.add(values, frame.record.tile[1] * frame.record.column_bytes)


def _move(frame: Frame, corner: Corner, name: Literal["values", "indices"], nbytes: int, width: int) -> None:
    """Copy the compressed columns of the tile from shared memory to global memory.

    nbytes: bytes of a column.
    width: bytes of an access.
    """
    k, record = frame.k, frame.record
    rows, columns = record.tile
    there = k.min(k.sub(frame.shape[0], corner.row), rows)
    if name == "values":
        source, pitch = _shared(frame)[0], frame.args["turned_pitch"]
        end = k.mul_lo(_quotient(k, k.add(there, SIDE - 1), SIDE), 2 * record.type.bytes)
    else:
        source, pitch = _shared(frame)[1], k.widen_u64(frame.list_bytes(frame.shape[0]))
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
            # The pitch of stored values has room to write whole chunks of 16 bytes.
            put(k, [(Address(to), k.setp("gt", "u32", inside, k.add(first, place)))], width, words)
            to = k.add(to, step)


def _read(k: KernelBuilder, address: Address, width: int) -> Sequence[Reg]:
    """The words of `width` bytes in shared memory."""
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
    """The quotient of a number and a power of two, by a shift. The assembler would use a reciprocal, also for
    constants.
    """
    return k.shr(number, by.bit_length() - 1)
