"""Plans the way of a tile from one layout to another: its places in shared memory, and the cost.

Each step of a layout has one weight: the bytes that it moves in memory. Steps of a chunk of 16 bytes come first, such that one layout
or both move whole chunks. Steps of lanes that take part in one turn of the banks then get banks of their own, both of those that store
and of those that load: a swizzle.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from louver.compile.plan.encode.shared_access import MATRIX_BITS, WORD, Way, best_way, ways
from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.isa.matrix import StoreMatrix
from louver.isa.swizzle import BANK_LINE, CHUNK
from louver.isa.targets import Target
from louver.ptx.validate import provides

MEETING = 40
"""Turns of the banks that are as long as threads of a CTA wait for each other."""

WARP_MEETING = 8
"""Turns of the banks that are as long as lanes of a warp wait for each other."""

MOST_BYTES = 64 * 1024
"""Shared memory of an exchange, at most: larger ones are made by parts."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means of exchanges on a target. matrices: whether there is `stmatrix`. bytes: of shared memory."""

    matrices: bool = True
    bytes: int = MOST_BYTES

    @classmethod
    def of(cls, target: Target) -> Means:
        """Those of a target."""
        return cls(provides(target.name, StoreMatrix().requires.target), min(MOST_BYTES, target.max_shared_bytes))


@dataclass(frozen=True)
class Swizzled:
    """A tile in shared memory, in elements of `size` bytes. weights: bytes by step; nothing for steps that are made apart."""

    size: int
    weights: Mapping[Vector, int]

    def offset(self, place: Vector) -> int:
        """Bytes before an element."""
        found = 0
        for dimension, number in enumerate(place):
            while number:
                bit = number & -number
                number -= bit
                found ^= self.weights.get(_step(dimension, bit, len(place)), 0)
        return found

    @property
    def bytes(self) -> int:
        """Of the whole tile."""
        reach = 0
        for weight in self.weights.values():
            reach |= weight
        return reach + self.size


@dataclass(frozen=True)
class ExchangePlan:
    """One exchange. store, load: the ways to and from memory. apart: steps of registers that parts differ by.

    local: whether each warp takes what it has put itself.
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
        """Turns of the banks for a warp, and instructions and waits as so many."""
        stored = self.store.cost(self.source, self.memory, self.apart)
        loaded = self.load.cost(self.result, self.memory, self.apart)
        return (stored + loaded + (WARP_MEETING if self.local else MEETING)) * 2 ** len(self.apart)


def _step(dimension: int, by: int, rank: int) -> Vector:
    return tuple(by if axis == dimension else 0 for axis in range(rank))


@functools.cache
def plan_exchange(source: Layout, result: Layout, size: int, means: Means) -> ExchangePlan:
    """The cheapest exchange. size: bytes of an element. It takes more than its bytes where parts cannot be made so small."""
    found: list[ExchangePlan] = []
    local = source.warp == result.warp and all(any(step) for step in source.warp)
    for chunk in dict.fromkeys(_chunks(source, result, size)):
        both = [step for step in source.register if step in result.register and step not in chunk]
        count = (-(-source.size * size // means.bytes) - 1).bit_length()
        apart = tuple(both[len(both) - count :]) if count else ()
        stores = means.matrices and not source.repeats
        # The ways say which lanes need banks of their own; with these banks there may be better ones.
        first = Swizzled(size, _weights(source, result, size, chunk, apart, ((), ())))
        for store in ways(source, first, apart, matrices=stores):
            for load in ways(result, first, apart):
                lanes = _in_turn(store, source, size), _in_turn(load, result, size)
                memory = Swizzled(size, _weights(source, result, size, chunk, apart, lanes))
                pair = best_way(source, memory, apart, matrices=stores), best_way(result, memory, apart)
                found.append(ExchangePlan(source, result, memory, *pair, apart, local))
    return min(found, key=lambda plan: (plan.memory.bytes > means.bytes, plan.cost))


def _chunks(source: Layout, result: Layout, size: int) -> list[Steps]:
    """The steps that a chunk may have, nearest first: those that either layout has in registers, or as matrices have them."""
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
    """The steps of the lanes that take part in one turn of the banks."""
    bits = MATRIX_BITS if way.matrices else min(LANE_BITS, (BANK_LINE // way.bytes(size)).bit_length() - 1)
    return tuple(step for step in way.lanes(layout)[:bits] if any(step))


def _weights(
    source: Layout, result: Layout, size: int, chunk: Steps, apart: Steps, lanes: tuple[Steps, Steps]
) -> dict[Vector, int]:
    """The bytes of each step. lanes: steps that need banks of their own, where stored and where loaded."""
    weights = {step: size << number for number, step in enumerate(chunk)}
    left = [
        step for step in (*source.register, *source.thread) if any(step) and step not in weights and step not in apart
    ]
    place = size << len(chunk)
    groups = [[step for step in group if step in left] for group in lanes]
    # Elements of one word share a bank: best are those that both ways want in one turn.
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
    """The bank that each step moves by: in each group all steps another one, as far as there are so many."""
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
    """The bits of the number of the lane that has a thread's elements, by the bits of the thread's number.

    None where lanes of a warp do not have them all, in one register for all of them.
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
    """The cheaper of shuffles, as `source_lanes` has it, and an exchange, for threads that have not their elements already."""
    plan, lanes = plan_exchange(source, result, size, means), source_lanes(source, result)
    return plan if lanes is None or plan.cost < len(result.registers) else lanes


def conversion_cost(source: Layout, result: Layout, size: int, means: Means) -> float:
    """Turns of the banks, and what is as long as so many."""
    if source.thread == result.thread:
        return 0
    found = conversion(source, result, size, means)
    return found.cost if isinstance(found, ExchangePlan) else len(result.registers)
