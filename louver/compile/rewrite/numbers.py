"""Computes entries of index lists from other entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, i64
from xdsl.ir import Operation, SSAValue

from louver.analysis.integers import literal
from louver.compile.rewrite.insert import insert_before, integer
from louver.ir.arith import ExtSIOp
from louver.ir.tile import Index


@dataclass(frozen=True, slots=True)
class Numbers:
    """Computes entries before `op`, as integers of `width` bits. Entries of constants become literals."""

    op: Operation
    width: int

    def ceil(self, entry: Index, by: int) -> Index:
        """entry / by, rounded up. The entry is not negative."""
        return self._binary(arith.DivUIOp, lambda a, b: a // b, self.plus(entry, by - 1), by)

    def quotient(self, left: Index, right: Index) -> Index:
        """left / right, rounded down. Both are not negative."""
        return self._binary(arith.DivSIOp, lambda a, b: a // b if b else 0, left, right)

    def times(self, left: Index, right: Index) -> Index:
        """left · right."""
        if 1 in (literal(left), literal(right)):
            return right if literal(left) == 1 else left
        return self._binary(arith.MuliOp, lambda a, b: a * b, left, right)

    def rest(self, entry: Index, by: int) -> Index:
        """The remainder of a non-negative entry by `by`."""
        return self._binary(arith.RemSIOp, lambda a, b: a % b, entry, by)

    def plus(self, left: Index, right: Index) -> Index:
        """left + right."""
        return self._binary(arith.AddiOp, lambda a, b: a + b, left, right)

    def minus(self, left: Index, right: Index) -> Index:
        """left - right."""
        return self._binary(arith.SubiOp, lambda a, b: a - b, left, right)

    def widened(self, entry: Index) -> Index:
        """The entry in 64 bits."""
        return entry if isinstance(entry, int) or entry.type == i64 else insert_before(self.op, ExtSIOp(entry, i64))

    def _binary(
        self,
        make: Callable[[SSAValue, SSAValue], Operation],
        compute: Callable[[int, int], int],
        left: Index,
        right: Index,
    ) -> Index:
        one, other = literal(left), literal(right)
        if one is not None and other is not None:
            return compute(one, other)
        type_ = IntegerType(self.width)
        values = [integer(self.op, each, type_) if isinstance(each, int) else each for each in (left, right)]
        return insert_before(self.op, make(*values))
