"""Keys of columns: norms, or marks of their contents, computed block by block from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Protocol

from louver.formats.select import Norm
from louver.isa.floating import Sign
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.library.streaming.lanes import Lanes, numbers
from louver.library.streaming.windows.record import Windowed
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Reg

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
