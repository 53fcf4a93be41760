"""Lowers scans in blocks of doubling size, over registers, lanes and warps, in the order of their steps along the axis.

To double a block, the elements of its second half are combined with the total of its first half. For registers and
lanes, a thread finishes one line along the axis before the next one. Warps exchange the totals of all lines at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from louver.compile.lower.tiles.exchange import as_number, as_truth, load_shared
from louver.compile.lower.tiles.numbers import choose
from louver.compile.lower.tiles.reduce import Elements, combined, from_lane, ordered
from louver.compile.lower.tiles.state import Lowering
from louver.ir.tile import ScanOp
from louver.ir.tile.layout import LANE_BITS, Vector
from louver.isa.instruction import REGISTER_BITS
from louver.isa.memory import Store
from louver.ptx.module import Address, Reg


def lower_scan(low: Lowering, op: ScanOp) -> None:
    """Scan the elements of each operand. Results have the layout of the operands."""
    scan = _Scan(low, op)
    axis, layout = op.axis.value.data, low.layout(op.srcs[0])
    threads = {step[axis]: bit for bit, step in enumerate(layout.thread)}
    lines: dict[Vector, list[int]] = {}
    for number, place in enumerate(layout.registers):
        lines.setdefault((*place[:axis], *place[axis + 1 :]), []).append(number)

    def join(weight: int, line: Sequence[int]) -> None:
        if weight in threads:
            scan.join_threads(threads[weight], line)
        else:
            step = next(1 << bit for bit, step in enumerate(layout.register) if step[axis] == weight)
            firsts = [number for number in line if not layout.registers[number][axis] & weight]
            scan.join_registers([(number, number + step) for number in firsts])

    weights = [1 << bit for bit in range(layout.shape[axis].bit_length() - 1)]
    for in_warp, group in groupby(weights, lambda weight: threads.get(weight, 0) < LANE_BITS):
        together = list(group)
        for line in lines.values() if in_warp else [range(len(layout.registers))]:
            for weight in together:
                join(weight, line)
    low.values.update(zip(op.result, zip(*scan.found, strict=True), strict=True))


class _Scan:
    """The state of a scan.

    found: for each register, the scan within its block so far, in new registers. These change in place, so that an
    instruction does not keep its operands in registers while it waits for others.
    totals: for each register, the total of its block.
    """

    def __init__(self, low: Lowering, op: ScanOp) -> None:
        self.low, self.op = low, op
        self.reverse = bool(op.reverse.value.data)
        self.totals: list[Elements] = list(zip(*(low.values[source] for source in op.srcs), strict=True))
        self.found = [tuple(map(low.copy, each)) for each in self.totals]
        self._made: dict[tuple[Elements, Elements], Elements] = {}

    def join_registers(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Join blocks whose halves are in two registers of a thread."""
        for pair in pairs:
            first, second = reversed(pair) if self.reverse else pair
            total = self._combine(self.totals[first], self.totals[second])
            self._replace(second, combined(self.low, self.op, self.totals[first], self.found[second]))
            self.totals[first] = self.totals[second] = total

    def join_threads(self, bit: int, numbers: Sequence[int]) -> None:
        """Join blocks whose halves are in threads that differ in one bit. numbers: the numbers of the registers."""
        low = self.low
        mine = list(dict.fromkeys(self.totals[number] for number in numbers))
        others = dict(zip(mine, _from_thread(low, self.op, mine, bit), strict=True))
        first = low.k.setp("ne" if self.reverse else "eq", "u32", low.k.and_(low.thread, 1 << bit), 0)
        for number in numbers:
            own = self.found[number]
            joined = combined(self.low, self.op, others[self.totals[number]], own)
            self._replace(number, tuple(choose(low, first, a, b) for a, b in zip(own, joined, strict=True)))
        # Both threads combine in the same order, so that both get the same total.
        whole = {each: self._combine(*ordered(low, first, each, others[each])) for each in mine}
        for number in numbers:
            self.totals[number] = whole[self.totals[number]]

    def _replace(self, number: int, elements: Elements) -> None:
        for into, each in zip(self.found[number], elements, strict=True):
            self.low.k.mov(each, into=into)

    def _combine(self, a: Elements, b: Elements) -> Elements:
        if (a, b) not in self._made:
            self._made[a, b] = combined(self.low, self.op, a, b)
        return self._made[a, b]


def _from_thread(low: Lowering, op: ScanOp, elements: Sequence[Elements], bit: int) -> list[Elements]:
    """The elements in the thread whose number differs in one bit."""
    if bit < LANE_BITS:
        return from_lane(low, elements, bit)
    columns = [list(column) for column in zip(*elements, strict=True)]
    return list(zip(*(_column_from_warp(low, op, column, bit) for column in columns), strict=True))


def _column_from_warp(low: Lowering, op: ScanOp, registers: Sequence[Reg], bit: int) -> list[Reg]:
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else list(registers)
    kind = stored[0].type
    size = REGISTER_BITS[kind] // 8
    pitch = low.threads * size
    low.begin_exchange(op, alone=False)
    mine = low.k.mad_lo(low.thread, size, low.room(op))
    for number, register in enumerate(stored):
        low.k.emit(Store("shared", kind), Address(mine, number * pitch), register)
    low.take_exchanged(op, alone=False)
    other = low.k.mad_lo(low.k.xor(low.thread, 1 << bit), size, low.room(op))
    found = [load_shared(low, kind, Address(other, number * pitch)) for number in range(len(stored))]
    return [as_truth(low, each) for each in found] if truths else found
