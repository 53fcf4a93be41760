"""Entries of index lists: what is known of them, and new ones made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, IntegerType
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer
from louver.ir.arith import ExtSIOp
from louver.ir.tile import Index


def literal(entry: Index) -> int | None:
    """The integer that an entry always is; None if there is no such."""
    return entry if isinstance(entry, int) else constant_integer(entry)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Makes entries before `op`, integers of `width` bits: literals where everything is constant."""

    op: Operation
    width: int

    def ceil(self, entry: Index, by: int) -> Index:
        """entry / by, rounded up; entry is not negative."""
        number = literal(entry)
        if number is not None:
            return -(-number // by)
        return self._binary(arith.DivUIOp, self._binary(arith.AddiOp, entry, by - 1), by)

    def exactly(self, entry: Index, by: int) -> Index:
        """entry / by, for an entry that is a multiple of `by`."""
        number = literal(entry)
        return self._binary(arith.DivSIOp, entry, by) if number is None else number // by

    def quotient(self, left: Index, right: Index) -> Index:
        """left / right, without what is left."""
        numbers = literal(left), literal(right)
        if numbers[0] is not None and numbers[1] is not None:
            return numbers[0] // numbers[1] if numbers[1] else 0
        return self._binary(arith.DivSIOp, left, right)

    def times(self, left: Index, right: Index) -> Index:
        """left · right."""
        numbers = literal(left), literal(right)
        if 1 in numbers:
            return right if numbers[0] == 1 else left
        if numbers[0] is not None and numbers[1] is not None:
            return numbers[0] * numbers[1]
        return self._binary(arith.MuliOp, left, right)

    def rest(self, entry: Index, by: int) -> Index:
        """What is left of an entry, which is not negative, by `by`."""
        number = literal(entry)
        return self._binary(arith.RemSIOp, entry, by) if number is None else number % by

    def plus(self, left: Index, right: Index) -> Index:
        """left + right."""
        numbers = literal(left), literal(right)
        if numbers[0] is not None and numbers[1] is not None:
            return numbers[0] + numbers[1]
        return self._binary(arith.AddiOp, left, right)

    def minus(self, left: Index, right: Index) -> Index:
        """left - right."""
        numbers = literal(left), literal(right)
        if numbers[0] is not None and numbers[1] is not None:
            return numbers[0] - numbers[1]
        return self._binary(arith.SubiOp, left, right)

    def widened(self, entry: Index) -> Index:
        """The entry in 64 bits."""
        if isinstance(entry, int) or entry.type == IntegerType(64):
            return entry
        return self._placed(ExtSIOp(entry, IntegerType(64)))

    def _binary(self, make: Callable[[SSAValue, SSAValue], Operation], left: Index, right: Index) -> SSAValue:
        return self._placed(make(self._value(left), self._value(right)))

    def _value(self, entry: Index) -> SSAValue:
        if not isinstance(entry, int):
            return entry
        return self._placed(arith.ConstantOp(IntegerAttr(entry, IntegerType(self.width))))

    def _placed(self, made: Operation) -> SSAValue:
        made.location = self.op.location
        Rewriter.insert_op(made, InsertPoint.before(self.op))
        return made.results[0]
