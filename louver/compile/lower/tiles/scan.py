"""Scans: each element combined with all before it, in blocks that double: registers, lanes and warps take part as the axis meets them.

In a block of twice the size, the second half's elements are combined with all of the first half.
"""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.lower.tiles.numbers import choose
from louver.compile.lower.tiles.reduce import Elements, LowerRegion, from_thread, ordered
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import ScanOp


def lower_scan(low: Lowering, op: ScanOp, lower_region: LowerRegion) -> tuple[Registers, ...]:
    """The combined elements of each operand, where its elements are."""
    scan = _Scan(low, op, lower_region)
    axis, layout = op.axis.value.data, low.layout(op.srcs[0])
    threads = {step[axis]: bit for bit, step in enumerate(layout.thread)}
    weight = 1
    while weight < layout.shape[axis]:
        if weight in threads:
            scan.join_threads(threads[weight])
        else:
            places = [place[axis] for place in layout.registers]
            step = next(1 << bit for bit, step in enumerate(layout.register) if step[axis] == weight)
            scan.join_registers([(number, number + step) for number, at in enumerate(places) if not at & weight])
        weight *= 2
    return tuple(tuple(column) for column in zip(*scan.found, strict=True))


class _Scan:
    """found: each register's elements combined with those before them in their block. totals: of its whole block."""

    def __init__(self, low: Lowering, op: ScanOp, lower_region: LowerRegion) -> None:
        self.low, self.op, self.lower_region = low, op, lower_region
        self.reverse = bool(op.reverse.value.data)
        self.found: list[Elements] = list(zip(*(low.values[source] for source in op.srcs), strict=True))
        self.totals = list(self.found)
        self._made: dict[tuple[Elements, Elements], Elements] = {}

    def join_registers(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Blocks whose halves are in two registers each."""
        for pair in pairs:
            first, second = reversed(pair) if self.reverse else pair
            total = self._combine(self.totals[first], self.totals[second])
            self.found[second] = self._combine(self.totals[first], self.found[second])
            self.totals[first] = self.totals[second] = total

    def join_threads(self, bit: int) -> None:
        """Blocks whose halves are in threads that differ in one bit of their numbers."""
        low = self.low
        mine = list(dict.fromkeys(self.totals))
        others = dict(zip(mine, from_thread(low, self.op, mine, bit), strict=True))
        first = low.k.setp("ne" if self.reverse else "eq", "u32", low.k.and_(low.thread, 1 << bit), 0)
        for number, (total, own) in enumerate(zip(list(self.totals), list(self.found), strict=True)):
            joined = self._combine(others[total], own)
            self.found[number] = tuple(choose(low, first, a, b) for a, b in zip(own, joined, strict=True))
        # Both threads combine in the same order, so that both get the same total.
        whole = {each: self._combine(*ordered(low, first, each, others[each])) for each in mine}
        self.totals = [whole[each] for each in self.totals]

    def _combine(self, a: Elements, b: Elements) -> Elements:
        if (a, b) not in self._made:
            self._made[a, b] = self.lower_region(self.op, (*a, *b))
        return self._made[a, b]
