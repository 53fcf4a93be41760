"""What a thread's accumulators become in the epilogue, eight columns at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from louver.ir.sched import ops
from louver.passes.lower.epilogue import (
    Known,
    arrays,
    evaluate,
    first_output_row,
    reads_arrays,
    reads_columns,
    scalars,
    vectors,
)
from louver.passes.lower.staging import BLOCK, Chunk
from louver.passes.lower.state import Lowering
from louver.ptx.module import Reg

Half: TypeAlias = tuple[Reg, Reg]
"""Two neighbouring columns of one row."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A row or column that a thread holds: its index, whether the output has it, and what the epilogue reads along it."""

    index: Reg
    inside: Reg
    known: Known


@dataclass(frozen=True, slots=True)
class Results:
    """The epilogue of one block of 64 rows. rows: the rows r and r + 8 that this thread holds."""

    low: Lowering
    op: ops.BulkStoreOp
    rows: tuple[_Line, _Line]

    @classmethod
    def of_blocks(cls, low: Lowering, op: ops.BulkStoreOp) -> list[Results]:
        """One for each block of the warpgroup; loads the scalars and the vectors along m."""
        k = low.k
        first = first_output_row(low, op)
        numbers = scalars(low, op)

        def line(offset: int) -> _Line:
            row = k.add(first, offset)
            inside = k.setp("lt", "u32", row, low.sizes["M"])
            return _Line(row, inside, numbers | vectors(low, op, "m", row, inside))

        starts = range(0, BLOCK * len(low.consumer.accumulators), BLOCK)
        return [cls(low, op, (line(start), line(start + 8))) for start in starts]

    def group(self, chunk: Chunk, group: int) -> tuple[Half, Half]:
        """Results of the chunk's eight columns number `group` that this thread holds: those of row r, those of row r + 8."""
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
        """One column that this thread holds, with the epilogue's vectors along n; None where it reads nothing there."""
        low, k = self.low, self.low.k
        if not reads_columns(self.op):
            return None
        pair = k.shl(k.and_(low.named["tid"], 3), 1)
        column = k.add(k.add(low.number(self.op.column), pair), offset)
        inside = k.setp("lt", "u32", column, low.sizes["N"])
        return _Line(column, inside, vectors(low, self.op, "n", column, inside))

    def _known(self, row: _Line, column: _Line | None) -> Known:
        """What the epilogue reads for one element."""
        if column is None:
            return row.known
        inside = column.inside
        if reads_arrays(self.op):
            inside = self.low.k.and_pred(row.inside, column.inside)
        return row.known | column.known | arrays(self.low, self.op, row.index, column.index, inside)
