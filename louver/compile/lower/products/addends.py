"""Loads arrays of the output's sizes that an epilogue reads, such as C, for several groups of columns at a time.

A thread has pairs of neighbouring columns. In an array with the output's rows a pair is contiguous. One load reads both
elements if all pairs are aligned. The kernel tests this from address, pitch and N, so launches do not test it. In an
array that is stored as [N, M] each element needs a load. The elements of eight lanes are neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.compile.lower.products.epilogue import (
    Cursors,
    Epilogue,
    Known,
    array_cursors,
    crowded,
    half,
    pointee,
    pointee_bytes,
)
from louver.compile.lower.products.state import Lowering
from louver.ir.refusal import source_location
from louver.ir.sched.epilogue import MatrixOp
from louver.ptx.module import Address, Reg

PAIRS = {1: 8, 2: 8, 3: 8, 4: 2}
"""Pairs that a thread reads at a time, by the number of warpgroups. They fit the registers beside the accumulators."""

Pair = tuple[Reg, ...]
"""Two neighbouring columns: a word of two 16-bit elements, or two registers."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the output that a thread holds.

    offset: rows from the thread's first row.
    inside: predicate, whether the output has the row; None if it is known.
    arrays: addresses in arrays with the output's rows, at the thread's first column.
    """

    offset: int
    inside: Reg | None
    arrays: Cursors


@dataclass(frozen=True, slots=True)
class Addends:
    """The arrays of one epilogue, for rows of one thread.

    row, column: the thread's first row and column.
    wide: for each array with the output's rows, a predicate, whether all pairs are aligned.
    """

    low: Lowering
    op: Epilogue
    rows: tuple[Row, ...]
    row: Reg
    column: Reg
    wide: dict[MatrixOp, Reg]

    @property
    def groups(self) -> int:
        """Groups of eight columns that are read at a time. A thread has one pair of each row in a group."""
        if crowded(self.low):
            return 1
        return max(1, PAIRS[self.low.warpgroups] // (len(self.rows) * max(1, len(matrices(self.op)))))

    def read(self, columns: Sequence[int]) -> Strip:
        """Read the pairs at `columns`, counted from the thread's first column."""
        found: dict[tuple[MatrixOp, int, int], Pair] = {}
        inside = {column: self._inside(column) for first in columns for column in (first, first + 1)}
        for each in matrices(self.op):
            with self.low.k.at(source_location(each.location)):
                if each in self.wide:
                    self._read_rows(each, columns, inside, found)
                else:
                    self._read_columns(each, columns, inside, found)
        return Strip(self.low, found)

    def _inside(self, column: int) -> list[Reg]:
        """For each row a predicate, whether the output has an element in that column."""
        k = self.low.k
        inside = k.setp("lt", "u32", k.add(self.column, column), self.low.sizes["N"])
        return [inside if row.inside is None else k.and_pred(row.inside, inside) for row in self.rows]

    def _read_rows(
        self,
        each: MatrixOp,
        columns: Sequence[int],
        inside: dict[int, list[Reg]],
        found: dict[tuple[MatrixOp, int, int], Pair],
    ) -> None:
        """Read pairs that are contiguous, by one load or two loads each."""
        k, size = self.low.k, pointee_bytes(each.matrix)
        places = [(number, column) for number in range(len(self.rows)) for column in columns]
        for number, column in places:
            found[each, number, column] = (k.mov(0),) if size == 2 else (_zero(self.low, each), _zero(self.low, each))
        with k.if_(self.wide[each], uniform=True):
            for number, column in places:
                address = Address(self.rows[number].arrays[each.result], column * size)
                k.load_global(found[each, number, column], address, guard=inside[column][number])
        with k.if_(self.wide[each], negated=True, uniform=True):
            single = {place: self._elements(each, found[each, *place], size) for place in places}
            for (number, column), registers in single.items():
                for pair, register in enumerate(registers):
                    address = Address(self.rows[number].arrays[each.result], (column + pair) * size)
                    k.load_global([register], address, guard=inside[column + pair][number])
            for place, registers in single.items():
                if size == 2:
                    k.mov(k.pack_b32(*registers), into=found[each, *place][0])

    def _elements(self, each: MatrixOp, pair: Pair, size: int) -> Pair:
        """A register for each element of a pair."""
        return (_zero(self.low, each), _zero(self.low, each)) if size == 2 else pair

    def _read_columns(
        self,
        each: MatrixOp,
        columns: Sequence[int],
        inside: dict[int, list[Reg]],
        found: dict[tuple[MatrixOp, int, int], Pair],
    ) -> None:
        low, size = self.low, pointee_bytes(each.matrix)
        for column in columns:
            cursors = [
                array_cursors(low, self.op, "n", low.k.add(self.column, column + pair), self.row)[each.result]
                for pair in (0, 1)
            ]
            for number, row in enumerate(self.rows):
                pair = found[each, number, column] = (_zero(low, each), _zero(low, each))
                for offset, (cursor, register) in enumerate(zip(cursors, pair, strict=True)):
                    address = Address(cursor, row.offset * size)
                    low.k.load_global([register], address, guard=inside[column + offset][number])


@dataclass(frozen=True, slots=True)
class Strip:
    """Elements that have been read, in the format of memory, by array, row number and first column of the pair."""

    low: Lowering
    pairs: dict[tuple[MatrixOp, int, int], Pair]

    def at(self, row: int, column: int, pair: int) -> Known:
        """The first or second element of a pair, for each array."""
        k, found = self.low.k, Known()
        for (each, number, first), registers in self.pairs.items():
            if (number, first) == (row, column):
                held = registers[pair] if len(registers) == 2 else k.halves(registers[0])[pair]
                found[each.result] = k.to_f32(half(pointee(each.matrix)), held) if held.type == "b16" else held
        return found


def matrices(op: Epilogue) -> list[MatrixOp]:
    """The operations that read arrays."""
    return [each for each in op.body.block.ops if isinstance(each, MatrixOp)]


def aligned_pairs(low: Lowering, op: Epilogue) -> dict[MatrixOp, Reg]:
    """For each array with the output's rows, whether all its pairs are aligned, and each is wholly inside or outside.

    A pair has the columns 2i and 2i + 1.
    """
    k = low.k
    found: dict[MatrixOp, Reg] = {}
    for each in matrices(op):
        if each.transposed is None:
            size = pointee_bytes(each.matrix)
            steps = k.shl(low.register(each.pitch), size.bit_length() - 1)
            beyond = k.and_(k.or_(low.register(each.matrix), steps), 2 * size - 1)
            odd = k.widen_u64(k.and_(low.sizes["N"], 1))
            found[each] = k.setp("eq", "u64", k.or_(beyond, odd), 0)
    return found


def _zero(low: Lowering, each: MatrixOp) -> Reg:
    """A register for one element in the format of memory, set to 0. Elements outside the array keep this value."""
    element = pointee(each.matrix)
    if element == "f32":
        return low.k.mov(0.0, kind="f32")
    return low.k.mov(0, kind="b32" if element == "s32" else "b16")
