"""Places in the lines in which a tensor is stored that is sparse along its last axis but one."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from louver.compile.rewrite.tile_numbers import TileNumbers


@dataclass(frozen=True, slots=True)
class DivisorArguments:
    """The arguments of a `louver.ir.computed.Divisor`, i32."""

    value: SSAValue
    multiplier: SSAValue
    shift: SSAValue

    def quotient(self, make: TileNumbers, number: SSAValue) -> SSAValue:
        """A number, i32 and not negative, divided and rounded down. A negative one gives any number."""
        product = make.times(make.unsigned(number), make.unsigned(self.multiplier))
        return make.narrow(make.right(product, make.unsigned(self.shift)))


@dataclass(frozen=True, slots=True)
class Lines:
    """How the lines of a tensor are stored that is sparse along its last axis but one.

    columns: the length of a row of the dense tensor. length: that of a line. matrix: the same, for more than one matrix.
    rows: of all matrices, i64.
    """

    columns: DivisorArguments
    length: SSAValue
    matrix: DivisorArguments | None
    rows: SSAValue

    def place(self, make: TileNumbers, count: SSAValue, rest: SSAValue, rows: SSAValue | None) -> Placed:
        """An element at an offset in the dense tensor: so many rows, or none, and the rest. count: the elements of the tensor."""
        columns = self.columns.value
        outside, offset = [make.compared(rest, "uge", count)], make.narrow(rest)
        before = row = self.columns.quotient(make, offset)
        column = make.minus(offset, make.times(row, columns))
        if rows is not None:
            total = make.add(rows, make.wide(row))
            outside.append(make.compared(total, "uge", self.rows))
            row = make.narrow(total)
        if self.matrix is not None:
            matrix = self.matrix.quotient(make, row)
            row = make.minus(row, make.times(matrix, self.length))
            column = make.add(make.times(matrix, columns), column)
        line = make.add(make.times(column, self.length), row)
        return Placed(line, row, row if rows is None else before, tuple(outside))


@dataclass(frozen=True, slots=True)
class Placed:
    """An element in the lines that are stored.

    line: its place in all lines, i32. inside: in its own one. aligned: a number that is a multiple of a piece if `inside` is.
    outside: conditions, any of which holds if the tensor lacks it.
    """

    line: SSAValue
    inside: SSAValue
    aligned: SSAValue
    outside: tuple[SSAValue, ...]
