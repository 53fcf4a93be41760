"""Computes the epilogue of a thread's accumulators, eight columns at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects.builtin import IntegerType

from louver.compile.lower.products.addends import Addends, Row, Strip, aligned_pairs
from louver.compile.lower.products.epilogue import (
    Cursors,
    Known,
    array_cursors,
    evaluate,
    first_output_row,
    is_gated,
    keep_apart,
    one_by_one,
    output_block,
    output_rows,
    reads_arrays,
    reads_columns,
    scalars,
    vector_cursors,
    vectors,
)
from louver.compile.lower.products.staging import Chunk
from louver.compile.lower.products.state import Lowering
from louver.ir.sched import ops
from louver.ptx.module import Reg

Half: TypeAlias = tuple[Reg, Reg]
"""Two neighbouring columns of one row."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A row that a thread holds.

    offset: rows from the thread's first row.
    inside: predicate, whether the output has the row.
    known: values that the epilogue reads for the whole row.
    arrays: addresses in arrays that have it as a row in memory.
    """

    offset: int
    inside: Reg
    known: Known
    arrays: Cursors


@dataclass(frozen=True, slots=True)
class Results:
    """The epilogue of one block of 64 rows of sums.

    block: the number of the block.
    rows: the rows of the output that this thread holds: r and r + 8, or one row of a gated product.
    first_column: the thread's first column.
    any_inside: predicate, whether the output has any of the warp's rows.
    addends: the arrays of the epilogue; None without any.
    strips: elements of the arrays that have been read, by first column.
    """

    low: Lowering
    op: ops.BulkStoreOp
    block: int
    rows: tuple[_Line, ...]
    first_column: Reg
    any_inside: Reg
    addends: Addends | None
    strips: dict[int, Strip] = field(default_factory=dict[int, Strip])

    @classmethod
    def of_block(cls, low: Lowering, op: ops.BulkStoreOp, block: int) -> Results:
        """The results of a block of the warpgroup. Loads the scalars, and the vectors along m."""
        k = low.k
        start = output_block(op) * block
        first = first_output_row(low, op)
        first_column = k.add(low.number(op.column), k.shl(k.and_(low.named["tid"], 3), 1))
        numbers = scalars(low, op)

        def line(offset: int) -> _Line:
            row = k.add(first, offset)
            inside = k.setp("lt", "u32", row, output_rows(low, op))
            known = numbers | vectors(low, op, vector_cursors(low, op, "m", row), inside)
            in_row = array_cursors(low, op, "m", row, first_column) if reads_arrays(op) else {}
            return _Line(offset, inside, known, in_row)

        warp_first = k.add(k.sub(first, k.shr(k.and_(low.named["tid"], 31), 2)), start)
        any_inside = k.setp("lt", "u32", warp_first, output_rows(low, op))
        rows = tuple(line(start + half) for half in ((0,) if is_gated(op) else (0, 8)))
        read = tuple(Row(row.offset, row.inside, row.arrays) for row in rows)
        addends = None
        if reads_arrays(op):
            addends = Addends(low, op, read, first, first_column, aligned_pairs(low, op))
        return cls(low, op, block, rows, first_column, any_inside, addends)

    def group(self, chunk: Chunk, group: int) -> tuple[Half, ...]:
        """The thread's results in group number `group` of eight columns of the chunk, row by row."""
        if one_by_one(self.low, self.op):
            return self._behind_a_branch(chunk, group)
        return self._results(chunk, group)

    def _results(self, chunk: Chunk, group: int) -> tuple[Half, ...]:
        column = chunk.column + 8 * group
        strip = self._strip(chunk, group)
        columns = self._column(column), self._column(column + 1)

        def result(index: int, pair: int) -> Reg:
            # A thread has both sums of a gated product: those of rows r and r + 8.
            halves = (index,) if len(self.rows) > 1 else (0, 1)
            sums = [self.low.sum_at(self.block, 8 * half, column + pair) for half in halves]
            read = {} if strip is None else strip.at(index, column, pair)
            return evaluate(self.low, self.op, sums, self.rows[index].known | columns[pair] | read)

        return tuple((result(index, 0), result(index, 1)) for index in range(len(self.rows)))

    def _behind_a_branch(self, chunk: Chunk, group: int) -> tuple[Half, ...]:
        """The results, computed in a branch; zeros if the output has none of the warp's rows."""
        k = self.low.k
        kept = tuple((self._zero(), self._zero()) for _ in self.rows)
        with k.if_(self.any_inside, uniform=True):
            for row, found in zip(kept, self._results(chunk, group), strict=True):
                for register, value in zip(row, found, strict=True):
                    k.mov(value, into=register)
        return kept

    def _zero(self) -> Reg:
        """A zero in a register of the class of results."""
        (end,) = (each for each in self.op.body.block.ops if isinstance(each, ops.YieldOp))
        return self.low.k.mov(0) if isinstance(end.value.type, IntegerType) else self.low.k.mov(0.0, kind="f32")

    def _strip(self, chunk: Chunk, group: int) -> Strip | None:
        """The loaded elements of the arrays for the columns of this group. The first request loads several groups."""
        addends = self.addends
        if addends is None:
            return None
        first = group - group % addends.groups
        start = chunk.column + 8 * first
        if start not in self.strips:
            keep_apart(self.low, self.op)
            last = min(first + addends.groups, chunk.columns // 8)
            self.strips[start] = addends.read(range(start, chunk.column + 8 * last, 8))
        return self.strips[start]

    def _column(self, offset: int) -> Known:
        """The values that the epilogue reads for one column of this thread."""
        low, op = self.low, self.op
        if not reads_columns(op):
            return {}
        inside = low.k.setp("lt", "u32", low.k.add(self.first_column, offset), low.sizes["N"])
        return vectors(low, op, vector_cursors(low, op, "n", self.first_column), inside, offset)
