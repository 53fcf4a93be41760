"""What a thread's accumulators become in the epilogue, eight columns at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from louver.ir.sched import ops
from louver.passes.lower.epilogue import (
    Cursors,
    Known,
    array_cursors,
    arrays,
    evaluate,
    first_output_row,
    keep_apart,
    reads_arrays,
    reads_columns,
    scalars,
    vector_cursors,
    vectors,
)
from louver.passes.lower.staging import BLOCK, Chunk
from louver.passes.lower.state import Lowering
from louver.ptx.module import Reg

Half: TypeAlias = tuple[Reg, Reg]
"""Two neighbouring columns of one row."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A row or column that a thread holds: how far it is from the thread's first one, whether the output has it, what the
    epilogue reads along it, and where its arrays are that have it as a row in memory.
    """

    offset: int
    inside: Reg
    known: Known
    arrays: Cursors


@dataclass(frozen=True, slots=True)
class Results:
    """The epilogue of one block of 64 rows. rows: the rows r and r + 8 that this thread holds. first_column: its first."""

    low: Lowering
    op: ops.BulkStoreOp
    rows: tuple[_Line, _Line]
    first_column: Reg

    @classmethod
    def of_blocks(cls, low: Lowering, op: ops.BulkStoreOp) -> list[Results]:
        """One for each block of the warpgroup; loads the scalars and the vectors along m."""
        k = low.k
        first = first_output_row(low, op)
        first_column = k.add(low.number(op.column), k.shl(k.and_(low.named["tid"], 3), 1))
        numbers = scalars(low, op)

        def line(offset: int) -> _Line:
            row = k.add(first, offset)
            inside = k.setp("lt", "u32", row, low.sizes["M"])
            known = numbers | vectors(low, op, vector_cursors(low, op, "m", row), inside)
            in_row = array_cursors(low, op, "m", row, first_column) if reads_arrays(op) else {}
            return _Line(offset, inside, known, in_row)

        starts = range(0, BLOCK * len(low.consumer.accumulators), BLOCK)
        return [cls(low, op, (line(start), line(start + 8)), first_column) for start in starts]

    def group(self, chunk: Chunk, group: int) -> tuple[Half, Half]:
        """Results of the chunk's eight columns number `group` that this thread holds: those of row r, those of row r + 8."""
        keep_apart(self.low, self.op)
        column = chunk.column + 8 * group
        columns = self._column(column), self._column(column + 1)

        def half(index: int) -> Half:
            first = 4 * (column // 8) + 2 * index
            row = self.rows[index]
            return (
                evaluate(self.low, self.op, self.low.sum_at(chunk.block, first), self._known(row, columns[0])),
                evaluate(self.low, self.op, self.low.sum_at(chunk.block, first + 1), self._known(row, columns[1])),
            )

        return half(0), half(1)

    def _column(self, offset: int) -> _Line | None:
        """One column that this thread holds; None where the epilogue reads nothing there."""
        low, op = self.low, self.op
        if not reads_columns(op):
            return None
        column = low.k.add(self.first_column, offset)
        inside = low.k.setp("lt", "u32", column, low.sizes["N"])
        known = vectors(low, op, vector_cursors(low, op, "n", self.first_column), inside, offset)
        in_column = array_cursors(low, op, "n", column, first_output_row(low, op)) if reads_arrays(op) else {}
        return _Line(offset, inside, known, in_column)

    def _known(self, row: _Line, column: _Line | None) -> Known:
        """What the epilogue reads for one element."""
        if column is None:
            return row.known
        inside = column.inside
        if reads_arrays(self.op):
            inside = self.low.k.and_pred(row.inside, column.inside)
        at = row.arrays | column.arrays
        return row.known | column.known | arrays(self.low, self.op, at, inside, row=row.offset, column=column.offset)
