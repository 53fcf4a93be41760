"""Divides the shared memory of a CTA among the rings of a kernel (`ring_copies.py`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from louver.compile.plan.feeds.ring_tiles import RingTile
from louver.compile.plan.feeds.taken_steps import TakenSteps
from louver.ir.tile.staging import slot_bytes
from louver.isa.swizzle import BANK_LINE

ENOUGH_SLOTS = 4
"""Slots with which copies arrive in time.

The first copies of a tile begin early only if the ring still gets this number.
"""

ENOUGH_CTAS = 2
"""CTAs on an SM from which copies that arrive in time are worth more than another CTA.

Three CTAs of four slots took 0.81 to 0.95 of the time of four CTAs of three, and 1.19 where few programs have work. Two of four
took 0.80 to 0.96 of three of two (`docs/perf-log/69-launchers-of-other-packages.md`).
"""

Peak = Callable[[Operation, Container[SSAValue | Operation]], int]
"""The peak of shared memory in bytes within an operation, without the bytes of some tiles."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A ring that is planned. Its slots take shared memory while the loop `home` runs."""

    loop: scf.ForOp
    tiles: Sequence[RingTile]
    taken: TakenSteps | None
    home: scf.ForOp

    @property
    def bytes(self) -> int:
        """Bytes of a slot."""
        return sum(slot_bytes(each.put.result) for each in self.tiles)


@dataclass(frozen=True, slots=True)
class Shares:
    """Divides shared memory among the rings of a function. Rings of loops that follow each other use the same memory."""

    rooms: Sequence[int]
    most: int
    peak: Peak
    deep: bool

    def slots(self, wishes: Sequence[Wish]) -> list[int]:
        """The number of slots of each ring; 0 for a ring that does not get two slots.

        Rings that are live at the same time get equal numbers as far as they fit.
        """
        kept = list[Wish]()
        for wish in wishes:
            if self._demand([*kept, wish])([2] * (len(kept) + 1)) <= self.rooms[-1]:
                kept.append(wish)
        counts, demand = [2] * len(kept), self._demand(kept)
        room = next(room for room in self.rooms if demand(counts) <= room)
        if self.deep:
            enough = [min(self.most, ENOUGH_SLOTS)] * len(kept)
            many = self.rooms[: max(0, len(self.rooms) - ENOUGH_CTAS + 1)]
            room = next((each for each in many if demand(enough) <= each), room)
        growing = set(range(len(kept)))
        while growing:
            index = min(growing, key=lambda each: (counts[each], each))
            counts[index] += 1
            if counts[index] > self.most or demand(counts) > room:
                counts[index] -= 1
                growing.remove(index)
        found = {wish.loop: count for wish, count in zip(kept, counts, strict=True)}
        return [found.get(wish.loop, 0) for wish in wishes]

    def _demand(self, wishes: Sequence[Wish]) -> Callable[[Sequence[int]], int]:
        """The bytes that rings need for their numbers of slots, beside everything else in their loops."""
        copied: set[SSAValue | Operation] = {each.put.result for wish in wishes for each in wish.tiles}
        sizes = [wish.bytes for wish in wishes]
        beside = [
            (self.peak(wish.home, copied), [other.home.is_ancestor(wish.home) for other in wishes]) for wish in wishes
        ]

        def demand(counts: Sequence[int]) -> int:
            slots = [count * size for count, size in zip(counts, sizes, strict=True)]
            most = max((peak + sum(itertools.compress(slots, live)) for peak, live in beside), default=0)
            # Barriers stay until the kernel ends.
            return most + BANK_LINE * len(wishes)

        return demand
