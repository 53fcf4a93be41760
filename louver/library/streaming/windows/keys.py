"""Keys of columns: norms, or marks of their contents, computed block by block; and the indices of kept columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from louver.formats.select import Norm
from louver.isa.floating import Sign
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Lanes, numbers
from louver.library.streaming.place import Corner
from louver.library.streaming.windows.frame import Frame
from louver.library.streaming.windows.record import Windowed
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg

NONZERO, NEGATIVE = 2, 1
"""Keys of columns with a non-zero element, and of other columns with a -0.0. A column of +0.0 has the key 0."""


class Keys(Protocol):
    """The keys of a block's columns."""

    def take(self, words: Sequence[Reg]) -> None:
        """Process the next block."""
        ...

    def found(self) -> list[Reg]:
        """The keys. Columns with larger keys are kept."""
        ...


def keys(k: KernelBuilder, record: Windowed) -> Keys:
    """The keys by which a kernel keeps columns."""
    return Marks(k, record) if record.norm is None else Norms(k, record, record.norm)


class Norms:
    """Norms as raw bits of f32. Sums are in the order of the rows, as in `louver.formats.select.norm_keys`."""

    def __init__(self, k: KernelBuilder, record: Windowed, norm: Norm) -> None:
        self._k, self._record, self._norm = k, record, norm
        self._sums = [k.mov(0.0, kind="f32") for _ in range(record.block_columns)]

    def take(self, words: Sequence[Reg]) -> None:
        k, record = self._k, self._record
        lanes = Lanes(k, record.type.bits)
        for word in words:
            values = numbers(lanes, record.type, word)
            # The elements of a word are either columns of one row, one for each sum, or rows of one column.
            own = self._sums if record.block_rows == 1 else self._sums * len(values)
            for total, value in zip(own, values, strict=False):
                k.add_f32(total, self._term(value), into=total)

    def found(self) -> list[Reg]:
        k = self._k
        made: list[Reg] = []
        for total in self._sums:
            bounded, bits = k.reg("f32"), k.reg("b32")
            # The minimum of a NaN and a number is the number, so NaN becomes infinity.
            k.emit(Binary("min", "f32"), bounded, total, inf)
            k.emit(Bitcast("b32"), bits, bounded)
            made.append(bits)
        return made

    def _term(self, value: Reg) -> Reg:
        if self._norm == "l2":
            return self._k.mul_f32(value, value)
        size = self._k.reg("f32")
        self._k.emit(Sign("abs", "f32"), size, value)
        return size


class Marks:
    """The keys `NONZERO`, `NEGATIVE` or 0."""

    def __init__(self, k: KernelBuilder, record: Windowed) -> None:
        self._k, self._record = k, record
        self._some, self._negative = k.mov(0), k.mov(0)

    def take(self, words: Sequence[Reg]) -> None:
        k = self._k
        lanes = Lanes(k, self._record.type.bits)
        for word in words:
            if not self._record.type.floating:
                k.or_(self._some, word, into=self._some)
                continue
            k.mov(k.logic(lambda a, b, c: a | b & c, self._some, word, lanes.low), into=self._some)
            negative = negative_zeros(lanes, word)
            k.or_(self._negative, negative, into=self._negative)

    def found(self) -> list[Reg]:
        k, bits = self._k, self._record.type.bits
        made: list[Reg] = []
        for column in range(self._record.block_columns):
            # In a block of one column, all elements of a word belong to this column.
            mask = 0xFFFFFFFF if self._record.block_columns == 1 else (1 << bits) - 1 << bits * column
            some, negative = (k.setp("ne", "u32", k.and_(found, mask), 0) for found in (self._some, self._negative))
            made.append(k.selp(NONZERO, k.selp(NEGATIVE, 0, negative), some))
        return made


def negative_zeros(lanes: Lanes, word: Reg) -> Reg:
    """The top bits of elements that are -0.0."""
    return lanes.k.logic(lambda a, b, c: a & ~b & c, word, lanes.nonzero(word), lanes.top)


def store_list(frame: Frame, corner: Corner) -> None:
    """Write the indices of a tile. `lists` has the column of each slot. Bits without a slot of the matrix are zeros."""
    k, record = frame.k, frame.record
    n, m, bits = record.pattern.n, record.pattern.m, record.index_bits
    each = 8 // bits
    at, count = frame.list_at(corner)
    with frame.each(record.slots // each) as byte:
        packed = k.mov(0)
        for number in range(each):
            slot = k.add(k.mul_lo(byte, each), number)
            (column,) = frame.read(frame.lists, slot)
            index = k.sub(column, k.mul_lo(frame.divided(slot, n)[0], m))
            inside = k.setp("lt", "u32", k.add(frame.first_slot(), slot), frame.kept)
            packed = k.or_(packed, k.shl(k.selp(index, 0, inside), bits * number))
        there = k.setp("lt", "u32", byte, count)
        k.store_byte(Address(k.add(at, k.widen_u64(byte))), k.low_half(packed), guard=there)


def load_list(frame: Frame, corner: Corner) -> None:
    """Read the indices of a tile to `lists`. Slots outside the matrix get legal indices. Records bits that are set
    without a slot.
    """
    k, record = frame.k, frame.record
    n, bits = record.pattern.n, record.index_bits
    at, count = frame.list_at(corner)
    with frame.each(record.slots) as slot:
        index = frame.listed_bits(at, slot, bits, count)
        inside = k.setp("lt", "u32", k.add(frame.first_slot(), slot), frame.kept)
        _note(frame, k.setp("ne", "u32", k.selp(0, index, inside), 0))
        frame.write(frame.lists, slot, [k.selp(index, frame.divided(slot, n)[1], inside)])


def check_list(frame: Frame) -> None:
    """Record indices in `lists` that do not increase in their group, or are outside the group."""
    k, record = frame.k, frame.record
    n, m = record.pattern.n, record.pattern.m
    with frame.each(record.slots) as slot:
        first = k.setp("eq", "u32", frame.divided(slot, n)[1], 0)
        (index,) = frame.read(frame.lists, slot)
        (before,) = frame.read(frame.lists, k.selp(slot, k.sub(slot, 1), first))
        _note(frame, k.setp("lt", "u32", index, k.selp(0, k.add(before, 1), first)))
        _note(frame, k.setp("ge", "u32", index, m))


def find_slot(frame: Frame, column: Reg) -> tuple[Reg, Reg]:
    """The slot of a column of the tile, by bisection of `lists`, and whether the column has a slot."""
    k, n = frame.k, frame.record.pattern.n
    group, place = frame.in_group(column)
    first = k.mul_lo(group, n)
    below = k.mov(0)
    for step in (1 << bit for bit in reversed(range(n.bit_length()))):
        further = k.add(below, step)
        (index,) = frame.read(frame.lists, k.add(first, k.sub(k.min(further, n), 1)))
        lower = k.and_pred(k.setp("le", "u32", further, n), k.setp("lt", "u32", index, place))
        k.selp(further, below, lower, into=below)
    slot = k.add(first, k.min(below, n - 1))
    (index,) = frame.read(frame.lists, slot)
    return slot, k.setp("eq", "u32", index, place)


def _note(frame: Frame, wrong: Reg) -> None:
    k = frame.k
    k.or_(frame.found.violated, k.selp(1, 0, wrong), into=frame.found.violated)
