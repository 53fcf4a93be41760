"""Reductions: in a thread's registers first, then among the lanes of a warp, then among warps by way of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.exchange import as_number, as_truth, load_shared, shuffled
from louver.compile.lower.tiles.numbers import choose
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.anchors import is_tile
from louver.ir.tile import CombiningOp, ReduceOp, ReduceReturnOp, ScanReturnOp
from louver.ir.tile.layout import LANE_BITS
from louver.isa.instruction import LANES, REGISTER_BITS
from louver.isa.memory import Store
from louver.ptx.module import Address, Reg

Elements: TypeAlias = tuple[Reg, ...]
"""One element of each operand."""

LowerRegion: TypeAlias = Callable[[CombiningOp, Sequence[Reg]], Elements]


def lower_reduction(low: Lowering, op: ReduceOp, lower_region: LowerRegion) -> tuple[Registers, ...]:
    """The combined elements of each operand, in every thread that has any of them."""
    axis, layout = op.axis.value.data, low.layout(op.srcs[0])
    groups: dict[tuple[int, ...], list[Elements]] = {}
    for number, at in enumerate(layout.registers):
        elements = tuple(low.values[source][number] for source in op.srcs)
        groups.setdefault(at[:axis] + at[axis + 1 :], []).append(elements)

    def combine(a: Elements, b: Elements) -> Elements:
        return lower_region(op, (*a, *b))

    totals: dict[tuple[int, ...], Elements] = {}
    for where, parts in groups.items():
        total = parts[0]
        for part in parts[1:]:
            total = combine(total, part)
        totals[where] = total
    for bit, step in enumerate(layout.thread):
        if step[axis]:
            others = from_thread(low, op, list(totals.values()), bit)
            # Both threads combine in the same order, so that both get the same result.
            lower = low.k.setp("eq", "u32", low.k.and_(low.thread, 1 << bit), 0)
            totals = {
                where: combine(*ordered(low, lower, mine, other))
                for (where, mine), other in zip(totals.items(), others, strict=True)
            }
    return tuple(_result(low, value, totals, number) for number, value in enumerate(op.result))


def ordered(low: Lowering, lower: Reg, mine: Elements, other: Elements) -> tuple[Elements, Elements]:
    """The thread's own elements first where the condition holds."""
    pairs = list(zip(mine, other, strict=True))
    first = tuple(choose(low, lower, a, b) for a, b in pairs)
    second = tuple(choose(low, lower, b, a) for a, b in pairs)
    return first, second


def _result(low: Lowering, value: SSAValue, totals: dict[tuple[int, ...], Elements], number: int) -> Registers:
    if not is_tile(value):
        (total,) = totals.values()
        return (total[number],)
    return tuple(totals[at][number] for at in low.layout(value).registers)


def from_thread(low: Lowering, op: CombiningOp, elements: Sequence[Elements], bit: int) -> list[Elements]:
    """The elements of the thread whose number differs in one bit."""
    if bit >= LANE_BITS:
        columns = [list(column) for column in zip(*elements, strict=True)]
        return list(zip(*(_column_from_warp(low, op, column, bit) for column in columns), strict=True))
    lane = low.k.xor(low.k.and_(low.thread, LANES - 1), 1 << bit)
    return [tuple(shuffled(low, each, lane) for each in element) for element in elements]


def _column_from_warp(low: Lowering, op: CombiningOp, registers: Sequence[Reg], bit: int) -> list[Reg]:
    truths = registers[0].type == "pred"
    stored = [as_number(low, each) for each in registers] if truths else list(registers)
    kind = stored[0].type
    size = REGISTER_BITS[kind] // 8
    pitch = low.threads * size
    low.begin_exchange(alone=False)
    mine = low.k.mad_lo(low.thread, size, low.room(op))
    for number, register in enumerate(stored):
        low.k.emit(Store("shared", kind), Address(mine, number * pitch), register)
    low.take_exchanged(alone=False)
    other = low.k.mad_lo(low.k.xor(low.thread, 1 << bit), size, low.room(op))
    found = [load_shared(low, kind, Address(other, number * pitch)) for number in range(len(stored))]
    return [as_truth(low, each) for each in found] if truths else found


def returned(op: CombiningOp) -> Sequence[SSAValue]:
    """What the region of a reduction or scan ends with."""
    end = op.combine.block.last_op
    assert isinstance(end, ReduceReturnOp | ScanReturnOp)
    return end.values
