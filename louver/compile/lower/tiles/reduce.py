"""Lowers reductions: first in a thread's registers, then among threads (`louver.compile.plan.encode.reduction_plan`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Operation

from louver.analysis.passages import end_of
from louver.compile.lower.tiles.exchange import exchanged_bytes, shuffled, through_shared
from louver.compile.lower.tiles.numbers import choose
from louver.compile.lower.tiles.packing import pack_elements
from louver.compile.lower.tiles.pairs import PairStep, pair_step, split_pair
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.anchors import is_tile
from louver.compile.plan.encode.exchange_plan import ExchangePlan, Means
from louver.compile.plan.encode.reduction_plan import ReductionPlan, plan_reduction
from louver.ir.tile import CombiningOp, ReduceOp, ReshapeOp, TransOp
from louver.ir.tile.layout import LANE_BITS, Layout, Vector
from louver.ir.tile.types import element_of
from louver.isa.floating import Fma
from louver.isa.instruction import LANES
from louver.ptx.module import Reg

Elements: TypeAlias = tuple[Reg, ...]
"""One element of each operand."""

Totals: TypeAlias = dict[Vector, Elements]
"""Elements by their places in the tile, without the axis."""

Combine: TypeAlias = Callable[[Elements, Elements], Elements]
"""Combines two elements of each operand."""

PAIRED = 2
"""Bytes of an element that is combined with its neighbour in the same register."""

COMMUTATIVE = (
    *(arith.AddfOp, arith.MulfOp, arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp),
    *(arith.AddiOp, arith.MuliOp, arith.AndIOp, arith.OrIOp, arith.XOrIOp),
    *(arith.MaxSIOp, arith.MinSIOp, arith.MaxUIOp, arith.MinUIOp),
)
"""Operations whose result does not depend on the order of the operands."""


def reduction_plan(op: ReduceOp, layout: Layout, result: Layout | None, means: Means) -> ReductionPlan:
    """The plan of a reduction among threads.

    result: the layout of the result; None for a scalar, which all threads get.
    """
    nowhere = Layout((), (), ((),) * LANE_BITS, ((),) * len(layout.warp))
    sizes = [exchanged_bytes(source, op) for source in op.srcs]
    return plan_reduction(layout, op.axis.value.data, result or nowhere, sizes, means)


def lower_reduction(low: Lowering, op: ReduceOp) -> None:
    """Combine the elements of each operand along the axis. Each thread gets the results of its layout."""
    axis, layout = op.axis.value.data, low.layout(op.srcs[0])
    result = low.layout(op.result[0]) if is_tile(op.result[0]) else None
    plan = reduction_plan(op, layout, result, low.means)

    def combine(a: Elements, b: Elements) -> Elements:
        return combined(low, op, a, b)

    together = pair_step(low, op.combine.block.first_op) if _commutes(op) else None
    factors = _factors(low, op)

    def along_registers(places: Sequence[Vector], columns: Sequence[Registers], along: int) -> Totals:
        """Combine a thread's elements along a dimension."""
        pieces = [
            (at[:along] + at[along + 1 :], each) for at, each in zip(places, zip(*columns, strict=True), strict=True)
        ]
        if together is not None and len(pieces) > 1:
            pieces = _in_pairs(low, pieces, together)
        found: Totals = {}
        for where, elements in pieces:
            if where not in found:
                found[where] = elements
            elif (product := factors.get(elements[0])) is not None:
                found[where] = (low.emit(Fma(), *product, found[where][0]),)
            else:
                found[where] = combine(found[where], elements)
        return found

    totals = along_registers(layout.registers, [low.values[source] for source in op.srcs], axis)
    lanes: list[tuple[Vector | None, Callable[[Totals, Combine], Totals]]] = [
        *((step, functools.partial(_shared_out, low, bit=bit, step=step)) for bit, step in plan.shared),
        *((None, functools.partial(_joined, low, op, bit=bit)) for bit in plan.joined),
    ]
    for step, change in lanes:
        divides = step is not None and len(totals) > 1 and _moved(next(iter(totals)), step) == list(totals)[1]
        totals = change(totals, combine) if together is None or divides else _in_words(low, totals, together, change)
    rank = len(layout.shape) - 1
    if plan.gathered:
        totals = along_registers(plan.gathered[0].result.registers, _exchanged(low, op, totals, plan.gathered), rank)
    if plan.spread:
        columns = _exchanged(low, op, totals, plan.spread)
        totals = dict(zip(plan.spread[0].result.registers, zip(*columns, strict=True), strict=True))
    places = [()] if result is None else result.registers
    for number, each in enumerate(op.result):
        low.values[each] = tuple(totals[at][number] for at in places)


def _factors(low: Lowering, op: ReduceOp) -> dict[Reg, tuple[Reg, ...]]:
    """The factors of each product that a sum adds. A multiply-add rounds once; the order of a sum's roundings is not specified."""
    value = op.srcs[0]
    while isinstance(value.owner, ReshapeOp | TransOp):
        value = value.owner.operands[0]
    product = value.owner
    if not isinstance(product, arith.MulfOp) or not isinstance(element_of(value.type), Float32Type):
        return {}
    if not _commutes(op) or not isinstance(op.combine.block.first_op, arith.AddfOp) or not _runs_straight(product, op):
        return {}
    return dict(zip(low.values[value], zip(*map(low.values.__getitem__, product.operands), strict=True), strict=True))


def _runs_straight(first: Operation, last: Operation) -> bool:
    """Whether no loop or branch between two operations may change registers that it carries."""
    between = first.next_op if first.parent is last.parent else None
    while between is not None and between is not last and (not between.regions or isinstance(between, ReduceOp)):
        between = between.next_op
    return between is last


def _in_pairs(
    low: Lowering, pieces: Sequence[tuple[Vector, Elements]], together: PairStep
) -> list[tuple[Vector, Elements]]:
    """Combine neighbouring registers with others of the same two places."""
    found: dict[tuple[Vector, Vector], Reg] = {}
    for (where, (one,)), (beside, (other,)) in zip(pieces[::2], pieces[1::2], strict=True):
        word, places = pack_elements(low, (one, other), PAIRED), (where, beside)
        found[places] = together(found[places], word) if places in found else word
    halves = [(places, split_pair(low, word)) for places, word in found.items()]
    pieces = [piece for places, pair in halves for piece in zip(places, ((each,) for each in pair), strict=True)]
    if len(halves) % 2 or any(where != beside for (where, beside), _ in halves):
        return pieces
    # Both halves of a pair belong to one place: the first halves of two places are added to their second halves.
    totals: list[tuple[Vector, Elements]] = []
    for one, other in zip(halves[::2], halves[1::2], strict=True):
        words = [pack_elements(low, column, PAIRED) for column in zip(one[1], other[1], strict=True)]
        both = split_pair(low, together(*words))
        totals += [(one[0][0], (both[0],)), (other[0][0], (both[1],))]
    return totals


def _in_words(low: Lowering, totals: Totals, together: PairStep, change: Callable[[Totals, Combine], Totals]) -> Totals:
    """Exchange and combine totals of 16 bits as pairs of neighbours. A single total is both elements of its pair."""
    places = list(totals)
    firsts, others = (places[::2], places[1::2]) if len(places) > 1 else (places, places)
    words = {
        one: (pack_elements(low, (*totals[one], *totals[other]), PAIRED),)
        for one, other in zip(firsts, others, strict=True)
    }
    beside = dict(zip(firsts, others, strict=True))
    found: Totals = {}
    for where, (word,) in change(words, lambda a, b: (together(*a, *b),)).items():
        found.update(zip((where, beside[where]), ((each,) for each in split_pair(low, word)), strict=True))
    return found


def _commutes(op: ReduceOp) -> bool:
    """Whether the order of two elements does not change the result of the reduction."""
    first, *more = op.combine.block.ops
    return len(more) == 1 and isinstance(first, COMMUTATIVE) and set(first.operands) == set(op.combine.block.args)


def _joined(low: Lowering, op: ReduceOp, totals: Totals, combine: Combine, bit: int) -> Totals:
    """Combine the totals of two lanes in both of them, in the same order, so that both get the same result."""
    lower, commutes = _lower_lane(low, bit), _commutes(op)
    others = from_lane(low, list(totals.values()), bit)
    return {
        where: combine(*((mine, other) if commutes else ordered(low, lower, mine, other)))
        for (where, mine), other in zip(totals.items(), others, strict=True)
    }


def _shared_out(low: Lowering, totals: Totals, combine: Combine, bit: int, step: Vector) -> Totals:
    """Divide the totals of two lanes. Pairs of totals are one step apart.

    The lower lane combines the totals without the step, the other lane those with it.
    """
    lower, kept, sent = _lower_lane(low, bit), dict[Vector, Elements](), list[Elements]()
    for where, mine in totals.items():
        if any(at & by for at, by in zip(where, step, strict=True)):
            continue
        beyond = totals[_moved(where, step)]
        kept[where], send = ordered(low, lower, mine, beyond)
        sent.append(send)
    others = from_lane(low, sent, bit)
    return {where: combine(mine, other) for (where, mine), other in zip(kept.items(), others, strict=True)}


def _moved(place: Vector, step: Vector) -> Vector:
    return tuple(at + by for at, by in zip(place, step, strict=True))


def _exchanged(low: Lowering, op: ReduceOp, totals: Totals, ways: Sequence[ExchangePlan]) -> list[Registers]:
    """The totals of each operand in a thread after an exchange."""
    found: list[Registers] = []
    rank = len(next(iter(totals)))
    for number, (source, way) in enumerate(zip(op.srcs, ways, strict=True)):
        registers = tuple(totals[at[:rank]][number] for at in way.source.registers)
        found.append(through_shared(low, op, registers, way, element_of(source.type)))
    return found


def ordered(low: Lowering, lower: Reg, mine: Elements, other: Elements) -> tuple[Elements, Elements]:
    """Both elements, in the order (mine, other) if the condition is true, else in the reverse order."""
    pairs = list(zip(mine, other, strict=True))
    first = tuple(choose(low, lower, a, b) for a, b in pairs)
    second = tuple(choose(low, lower, b, a) for a, b in pairs)
    return first, second


def _lower_lane(low: Lowering, bit: int) -> Reg:
    """A predicate that is true in lanes in whose number the bit is 0."""
    return low.k.setp("eq", "u32", low.k.and_(low.thread, 1 << bit), 0)


def from_lane(low: Lowering, elements: Sequence[Elements], bit: int) -> list[Elements]:
    """The elements in the lane whose number differs in one bit."""
    lane = low.k.xor(low.k.and_(low.thread, LANES - 1), 1 << bit)
    return [tuple(shuffled(low, each, lane) for each in element) for element in elements]


def combined(low: Lowering, op: CombiningOp, a: Elements, b: Elements) -> Elements:
    """Lower the region of a reduction or scan for two elements of each operand."""
    block = op.combine.block
    low.values.update(zip(block.args, ((each,) for each in (*a, *b)), strict=True))
    low.lower_block(block)
    return tuple(map(low.scalar, end_of(block).operands))
