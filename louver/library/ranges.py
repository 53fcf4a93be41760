"""Which tiles a launch cuts into ranges of K, and into how many, by predicted cycles; and what it costs not to."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from louver.compile.plan.layout import dense_layout, parts_together, values_layout
from louver.compile.plan.schedule import Schedule, accumulator_registers
from louver.formats.dtypes import element_type
from louver.ir.product import Selection
from louver.isa.prepack import columns_per_load
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.fused import Bound

SM_BYTES = 64
"""Bytes a clock that come into an SM."""

MEMORY_BYTES = 2400
"""Bytes a clock that all SMs read and write of global memory: 4.27 TB/s at 1.78 GHz."""

LOAD_CYCLES = 1000
"""Clocks from one load of metadata by registers to the next at least: each waits for the one before."""

TRIP = 700
"""Clocks of a trip to the L2 cache and back, of a fence or an atomic too."""

TRIPS = 3
"""Trips of a range before it knows whether it is the last one of its tile: what is written, the fence, the atomic."""

REGISTER_BYTES = 4

MOST_PARTS = 32
"""Ranges of a tile at most: the last one reads all of them alone."""

MOST_WAVES = 4
"""Waves of ranges at most: more of them are little more even, and take more memory."""


class Operands(Protocol):
    """What is asked about a product beside its schedule: element types, the contiguous dimension of b, and how a selects its rows."""

    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def b_major(self) -> Literal["k", "mn"]: ...
    @property
    def selection(self) -> Selection: ...
    @property
    def out(self) -> str: ...
    @property
    def accumulator(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Ranges:
    """How a launch cuts K. tiles: of the product. whole: how many of them are not cut. parts: ranges of each other one.
    part_steps: K steps of a range; the last one of a tile has what is left.
    """

    tiles: int
    whole: int
    parts: int
    part_steps: int

    @property
    def cut(self) -> int:
        """Tiles that are cut."""
        return self.tiles - self.whole

    @property
    def items(self) -> int:
        """Whole tiles and ranges."""
        return self.whole + self.cut * self.parts

    @property
    def sizes(self) -> dict[str, int]:
        """By the names of the kernel's parameters."""
        return {"whole": self.whole, "parts": self.parts, "part_steps": self.part_steps}

    def of(self, tiles: int) -> Ranges:
        """The same cut of fewer tiles."""
        return Ranges(tiles, min(self.whole, tiles), self.parts, self.part_steps)


@dataclass(frozen=True, slots=True)
class Cutting:
    """A kernel as far as its time depends on how K is cut.

    m, n, k: its tile, with all tiles of a cluster. step_cycles: clocks of a step of K at least. granule: steps of which a range has a
    multiple. sum_bytes: of a tile's sums. counters: of a tile. together: parts that are read at a time. bits, out_bytes: of elements.
    """

    m: int
    n: int
    k: int
    cluster: int
    step_cycles: float
    granule: int
    sum_bytes: int
    counters: int
    together: int
    bits: int
    out_bytes: int

    @classmethod
    def of(cls, operands: Operands, schedule: Schedule) -> Cutting:
        """Of a schedule for these operands."""
        tile, cluster = schedule.tile, schedule.order.cluster
        bits = element_type(operands.b).bits
        lifted = operands.selection == "lifted"
        columns_a_load = columns_per_load(operands.a) if lifted else tile.k
        stage = values_layout(schedule, operands.a, operands.selection).bytes
        stage += dense_layout(schedule, operands.b, operands.b_major).bytes + lifted * tile.m * tile.k // 8
        cycles = stage / SM_BYTES
        if lifted and schedule.ring.metadata == "global":
            cycles = max(cycles, LOAD_CYCLES * tile.k / columns_a_load)
        registers, warpgroups = (
            accumulator_registers(schedule, operands.accumulator, promoted=False),
            schedule.roles.consumers,
        )
        return cls(
            tile.m * cluster,
            tile.n,
            tile.k,
            cluster,
            cycles,
            columns_a_load // tile.k,
            REGISTER_BYTES * registers * WARPGROUP_THREADS * warpgroups,
            warpgroups,
            parts_together(registers),
            bits,
            element_type(operands.out).bytes,
        )

    def whole(self, m: int, n: int, k: int, batch: int) -> Ranges:
        """No tile of `batch` products a [m, k] @ b [k, n] is cut."""
        tiles = -(-m // self.m) * -(-n // self.n) * batch
        return Ranges(tiles, tiles, 1, -(-k // self.k))

    def best(self, m: int, n: int, k: int, batch: int, sm_count: int) -> Ranges:
        """The cut of the least predicted time, the one with the fewest parts of equals; none where nothing can be cut."""
        return _best(self, m, n, k, batch, sm_count)

    def cuts(self, whole: Ranges, n: int, sm_count: int) -> Iterator[Ranges]:
        """Cuts worth a prediction: of the last wave, which is then done at once, and of all tiles that share no values.

        CTAs at different K would lose what they share in the L2 cache.
        """
        at_once = self._at_once(sm_count)
        last = whole.tiles % at_once
        yield from self._cuts(whole, whole.tiles - last, min(at_once // max(last, 1), MOST_PARTS))
        if n <= self.n:
            yield from self._cuts(whole, 0, min(MOST_PARTS, MOST_WAVES * at_once // whole.tiles))

    def _cuts(self, whole: Ranges, start: int, most: int) -> Iterator[Ranges]:
        """Cuts of the tiles from `start` on into 2 to `most` parts."""
        steps = whole.part_steps
        for wanted in range(2, most + 1):
            length = -(-steps // (wanted * self.granule)) * self.granule
            parts = -(-steps // length)
            if parts > 1 and start < whole.tiles:
                yield Ranges(whole.tiles, start, parts, length)

    def cycles(self, cut: Ranges, m: int, n: int, k: int, batch: int, sm_count: int) -> float:
        """Predicted clocks: of the busiest SM and of global memory, neither of which hides all of the other, and of combining."""
        at_once, steps = self._at_once(sm_count), -(-k // self.k)
        ranges, finished = -(-cut.cut * cut.parts // at_once), -(-cut.cut // at_once)
        busiest = (-(-cut.whole // at_once) * steps + ranges * cut.part_steps) * self.step_cycles
        # By whole tiles, so that all N of a number of tiles are alike.
        rows, columns = -(-m // self.m) * self.m, -(-n // self.n) * self.n
        operands = (rows * k * 5 // 8 + columns * k) * self.bits // 8
        memory = batch * (operands + rows * columns * self.out_bytes) / MEMORY_BYTES
        moved = self.sum_bytes / SM_BYTES
        combining = ranges * (TRIPS * TRIP + moved)
        combining += finished * (-(-cut.parts // self.together) * TRIP + cut.parts * moved)
        return math.hypot(busiest, memory) + (combining if cut.cut else 0)

    def workspace(self, cut: Ranges) -> tuple[int, int]:
        """Bytes of sums, and counters, that a launch needs."""
        tiles = cut.cut * self.cluster
        return tiles * cut.parts * self.sum_bytes, tiles * self.counters

    def _at_once(self, sm_count: int) -> int:
        """Items that are worked on at a time."""
        return max(1, sm_count // self.cluster)


@functools.lru_cache(maxsize=1024)
def _best(cutting: Cutting, m: int, n: int, k: int, batch: int, sm_count: int) -> Ranges:
    whole = cutting.whole(m, n, k, batch)
    cuts = dict.fromkeys(cutting.cuts(whole, n, sm_count))
    return min(cuts, key=lambda cut: (cutting.cycles(cut, m, n, k, batch, sm_count), cut.parts), default=whole)


def with_workspace(bound: Bound, workspace: int, counters: int) -> Bound:
    """What a launch binds, with the addresses of what `Cutting.workspace` asks for."""
    return replace(bound, pointers={**bound.pointers, "workspace": workspace, "counters": counters})
