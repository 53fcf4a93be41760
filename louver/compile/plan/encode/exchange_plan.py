"""Plans how a tile goes from one layout to another through shared memory: the places of its elements, and the cost.

Each step of a layout has a weight: its distance in shared memory, in bytes. Steps within a chunk of 16 bytes get the
first weights, so that at least one layout moves whole chunks. Then lanes of the same turn of the banks get different
banks, for stores and for loads. The result is a swizzle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from louver.compile.plan.encode.shared_access import MATRIX_BITS, WORD, Way, best_way, ways
from louver.ir.tile.encodings import along
from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.isa.matrix import StoreMatrix
from louver.isa.swizzle import BANK_LINE, CHUNK
from louver.isa.targets import Target

MEETING = 40
"""The cost of a barrier of the CTA, in turns of the banks."""

WARP_MEETING = 8
"""The cost of a barrier of a warp, in turns of the banks."""

GAIN = 32
"""Turns of the banks that a choice which needs an exchange must gain. They cover its addresses and waits."""

MOST_BYTES = 64 * 1024
"""The largest shared memory of an exchange, in bytes. A larger tile is exchanged in parts."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a target offers for exchanges. matrices: whether it has `stmatrix`. bytes: bytes of shared memory."""

    matrices: bool = True
    bytes: int = MOST_BYTES

    @classmethod
    def of(cls, target: Target) -> Means:
        """The means of a target."""
        return cls(target.provides(StoreMatrix().requires.target), min(MOST_BYTES, target.max_shared_bytes))


@dataclass(frozen=True)
class Swizzled:
    """A tile in shared memory, in elements of `size` bytes.

    weights: bytes of each step. Steps by which parts differ have none.
    """

    size: int
    weights: Mapping[Vector, int]

    def offset(self, place: Vector) -> int:
        """The offset of an element in bytes."""
        found = 0
        for dimension, number in enumerate(place):
            while number:
                bit = number & -number
                number -= bit
                found ^= self.weights.get(along(dimension, bit, len(place)), 0)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of the whole tile."""
        reach = 0
        for weight in self.weights.values():
            reach |= weight
        return reach + self.size


@dataclass(frozen=True)
class ExchangePlan:
    """One exchange.

    store, load: how threads store and load elements.
    apart: steps of registers by which parts differ.
    local: whether each warp loads only elements that it stored itself.
    """

    source: Layout
    result: Layout
    memory: Swizzled
    store: Way
    load: Way
    apart: Steps
    local: bool

    @property
    def cost(self) -> float:
        """The cost for a warp, in turns of the banks. Instructions and waits are converted to turns."""
        stored = self.store.cost(self.source, self.memory, self.apart)
        loaded = self.load.cost(self.result, self.memory, self.apart)
        return (stored + loaded + (WARP_MEETING if self.local else MEETING)) * 2 ** len(self.apart)


@functools.cache
def plan_exchange(source: Layout, result: Layout, size: int, means: Means) -> ExchangePlan:
    """The cheapest exchange. size: bytes of an element. It takes more than `means.bytes` if parts cannot be that small."""
    found: list[ExchangePlan] = []
    local = source.warp == result.warp and all(any(step) for step in source.warp)
    for chunk in dict.fromkeys(_chunks(source, result, size)):
        both = [step for step in source.register if step in result.register and step not in chunk]
        count = (-(-source.size * size // means.bytes) - 1).bit_length()
        apart = tuple(both[len(both) - count :]) if count else ()
        stores = means.matrices and not source.repeats
        # The ways say which lanes need different banks. With these banks, other ways may be cheaper.
        first = Swizzled(size, _weights(source, result, size, chunk, apart, ((), ())))
        for store in ways(source, first, apart, matrices=stores):
            for load in ways(result, first, apart):
                lanes = _in_turn(store, source, size), _in_turn(load, result, size)
                memory = Swizzled(size, _weights(source, result, size, chunk, apart, lanes))
                pair = best_way(source, memory, apart, matrices=stores), best_way(result, memory, apart)
                found.append(ExchangePlan(source, result, memory, *pair, apart, local))
    return min(found, key=lambda plan: (plan.memory.bytes > means.bytes, plan.cost))


def _chunks(source: Layout, result: Layout, size: int) -> list[Steps]:
    """The steps that a chunk may have, nearest first: steps of registers of one layout, or steps as in matrices."""
    found: list[Steps] = []
    most = (CHUNK // size).bit_length() - 1
    bits = (WORD // size).bit_length() - 1 if size <= WORD else 0
    for one, other in ((result, source), (source, result)):
        both = [step for step in one.register if step in other.register]
        own = [*both, *(step for step in one.register if step not in both)]
        found.append(tuple(own[:most]))
        if size <= WORD and all(any(step) for step in one.lane[:2]) and len(own) >= bits:
            found.append((*own[:bits], *one.lane[:2]))
        if size == 2 and all(any(step) for step in one.lane[2:]):
            found.append(one.lane[2:])
    return found


def _in_turn(way: Way, layout: Layout, size: int) -> Steps:
    """The steps of the lanes of one turn of the banks."""
    bits = MATRIX_BITS if way.matrices else min(LANE_BITS, (BANK_LINE // way.bytes(size)).bit_length() - 1)
    return tuple(step for step in way.lanes(layout)[:bits] if any(step))


def _weights(
    source: Layout, result: Layout, size: int, chunk: Steps, apart: Steps, lanes: tuple[Steps, Steps]
) -> dict[Vector, int]:
    """The weight of each step in bytes. lanes: steps that need different banks, in the store and in the load."""
    weights = {step: size << number for number, step in enumerate(chunk)}
    left = [
        step for step in (*source.register, *source.thread) if any(step) and step not in weights and step not in apart
    ]
    place = size << len(chunk)
    groups = [[step for step in group if step in left] for group in lanes]
    # Elements of one word share a bank. The best steps for a word are those that store and load have in one turn.
    order = sorted(left, key=lambda step: sum(step in group for group in groups), reverse=True)
    for step in order:
        if place >= WORD:
            break
        weights[step] = place
        place *= 2
        left.remove(step)
        groups = [[other for other in group if other != step] for group in groups]
    banks = _doubled(place, BANK_LINE)
    columns = _columns(groups, banks)
    taken: dict[int, Vector] = {}
    for step, bank in columns.items():
        taken.setdefault(bank, step)
    free = [step for step in left if step not in columns]
    for bank in banks:
        if bank not in taken and free:
            taken[bank] = free.pop(0)
    weights.update((step, bank) for bank, step in taken.items())
    line = max(BANK_LINE, place)
    for step in left:
        if step not in weights:
            weights[step] = line | columns.get(step, 0)
            line *= 2
    return weights


def _columns(groups: Sequence[Sequence[Vector]], banks: Sequence[int]) -> dict[Vector, int]:
    """The weight in banks of each step. Steps of a group get different banks while there are any."""
    both = [step for step in groups[0] if step in groups[1]]
    found: dict[Vector, int] = {}
    for group in groups:
        own = [*both, *(step for step in group if step not in both)]
        found.update(zip(own, banks, strict=False))
    return found


def _doubled(first: int, end: int) -> list[int]:
    found: list[int] = []
    while first < end:
        found.append(first)
        first *= 2
    return found


def source_lanes(source: Layout, result: Layout) -> tuple[int, ...] | None:
    """For each bit of a thread's number, the bits of the number of the lane that has its elements.

    None if the lanes of the warp do not have all elements, or not in the same register for all threads.
    """
    if not all(step in source.register for step in result.register):
        return None
    found: list[int] = []
    for bit, step in enumerate(result.thread):
        kept = bit >= LANE_BITS and step == source.thread[bit]
        if any(step) and not kept and step not in source.lane:
            return None
        found.append(1 << source.lane.index(step) if any(step) and not kept else 0)
    return tuple(found)


def conversion(source: Layout, result: Layout, size: int, means: Means) -> ExchangePlan | tuple[int, ...]:
    """The cheaper one of shuffles (the result of `source_lanes`) and an exchange, if elements must change threads."""
    plan, lanes = plan_exchange(source, result, size, means), source_lanes(source, result)
    return plan if lanes is None or plan.cost < len(result.registers) else lanes


def conversion_cost(source: Layout, result: Layout, size: int, means: Means) -> float:
    """The cost of a conversion, in turns of the banks."""
    if source.thread == result.thread:
        return 0
    found = conversion(source, result, size, means)
    return found.cost if isinstance(found, ExchangePlan) else len(result.registers)
