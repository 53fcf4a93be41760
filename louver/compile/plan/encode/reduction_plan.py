"""Plans a reduction among the threads that share an axis: lanes by shuffles, warps through shared memory.

If warps share the axis, lanes need their results only to store them. At each shuffle two lanes divide the work: each
combines one element of a pair. Warps then store a partial tile, with the number of the warp as last dimension. Each
thread loads the elements that it combines. A second exchange distributes the totals if that is faster than to load all
partial results in every thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.compile.plan.encode.exchange_plan import ExchangePlan, Means, plan_exchange
from louver.compile.plan.encode.shared_access import SCHEDULERS
from louver.ir.tile.encodings import BlockedAttr
from louver.ir.tile.layout import Layout, Steps, Vector, widened


@dataclass(frozen=True, slots=True)
class ReductionPlan:
    """A plan of a reduction.

    shared: bits of a lane's number, each with the step between two elements that both lanes have. Each lane combines
    one of them.
    joined: bits of a lane's number for which both lanes combine the same elements.
    gathered: the exchange of each operand among warps; empty if each warp has the whole axis.
    spread: the exchanges that bring totals to their threads; empty if the totals are there.
    """

    shared: tuple[tuple[int, Vector], ...]
    joined: tuple[int, ...]
    gathered: tuple[ExchangePlan, ...] = ()
    spread: tuple[ExchangePlan, ...] = ()

    @property
    def cost(self) -> float:
        """The cost of the exchanges and of the operations on exchanged elements."""
        return sum(each.cost + len(each.result.registers) / SCHEDULERS for each in (*self.gathered, *self.spread))


def plan_reduction(layout: Layout, axis: int, result: Layout, sizes: Sequence[int], means: Means) -> ReductionPlan:
    """The cheapest plan.

    result: the layout of the totals, a slice of `layout`.
    sizes: bytes of an element of each operand.
    """
    lanes = tuple(bit for bit, step in enumerate(layout.lane) if step[axis])
    warps = [bit for bit, step in enumerate(layout.warp) if step[axis]]
    if not warps:
        return ReductionPlan((), lanes)
    register = [left for step in layout.register if any(left := _without(step, axis))]
    lane, warp = ([_without(step, axis) for step in steps] for steps in (layout.lane, layout.warp))
    shared = tuple((bit, register.pop()) for bit in lanes[: len(register)])
    for bit, step in shared:
        lane[bit] = step
    partial = Layout(
        (*result.shape, 1 << len(warps)),
        widened(register),
        widened(lane),
        tuple((*step, 1 << warps.index(bit) if bit in warps else 0) for bit, step in enumerate(warp)),
    )
    found: list[ReductionPlan] = []
    for gathered in _together(partial, result):
        combined = Layout(result.shape, *_dropped(gathered))
        ways = tuple(plan_exchange(partial, gathered, size, means) for size in sizes)
        there = (combined.lane, combined.warp) == (result.lane, result.warp)
        spread = () if there else tuple(plan_exchange(combined, result, size, means) for size in sizes)
        found.append(ReductionPlan(shared, lanes[len(shared) :], ways, spread))
    return min(found, key=lambda plan: plan.cost)


def _together(partial: Layout, result: Layout) -> list[Layout]:
    """Layouts of the partial tile in which a thread has the whole last dimension.

    In the first layout each thread combines its own totals, in the second one only a few.
    """
    count = partial.shape[-1]
    steps = tuple((*(0,) * len(result.shape), 1 << bit) for bit in range(count.bit_length() - 1))
    own = Layout(partial.shape, (*steps, *widened(result.register)), widened(result.lane), widened(result.warp))
    if not result.shape:
        return [own]
    order = tuple(reversed(range(len(partial.shape))))
    return [own, BlockedAttr.default(partial.shape, partial.warps, count, order, whole=True).layout(partial.shape)]


def _dropped(layout: Layout) -> tuple[Steps, Steps, Steps]:
    """The steps of registers, lanes and warps without the last dimension. A thread has that dimension whole."""
    last = len(layout.shape) - 1
    register, lane, warp = (
        tuple(_without(step, last) for step in steps) for steps in (layout.register, layout.lane, layout.warp)
    )
    return tuple(step for step in register if any(step)), lane, warp


def _without(step: Vector, axis: int) -> Vector:
    return step[:axis] + step[axis + 1 :]
