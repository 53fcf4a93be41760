"""The choice of the tiles that a launch cuts into ranges of K, and of the number of ranges, by predicted cycles; and the cost of no cut."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from louver.compile.plan.layout import parts_together
from louver.compile.plan.schedule import Schedule, accumulator_registers
from louver.formats.dtypes import element_type
from louver.isa.prepack import columns_per_load
from louver.isa.targets import WARPGROUP_THREADS
from louver.library.fused import Bound
from louver.library.order import GPC_SMS, beside, walked_rows
from louver.library.times import H200, Operands, Rates, box_bytes, power_clocks, step_clocks

TRIPS = 3
"""Trips of a range before it knows whether it is the last one of its tile: its writes, the wait for them, and the atomic."""

REGISTER_BYTES = 4

MOST_PARTS = 32
"""Ranges of a tile at most: the last one reads all of them alone."""

MOST_WAVES = 4
"""Waves of ranges at most: more are little more even, and take more memory."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """The cut of K of a launch. tiles: of the product. whole: the number of them that are not cut. parts: ranges of each other one.
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
    """A kernel as far as its time depends on how K is cut; of gathered rows K counts those that are multiplied.

    m, n, k: its tile, with all tiles of a cluster. ctas: on an SM. step: clocks of a step of K that are an SM's own, of all CTAs on it. values, dense: bytes
    of a step's boxes of a, of all tiles of a cluster, and of b. power: clocks that the power of a step's products takes, of all tiles of a cluster. store: clocks of a tile's epilogue. granule: steps of which a range has a
    multiple. pairs: the two ranges of a tile are a cluster's, which exchange sums. sum_bytes: of a tile's sums. counters: of a tile. together: parts that are read at a time. bits: of an element of b. stored: bits of an element of a, with its metadata. out_bytes: of an output.
    rates: of the GPU.
    """

    m: int
    n: int
    k: int
    cluster: int
    ctas: int
    step: float
    values: float
    dense: float
    power: float
    store: float
    granule: int
    pairs: bool
    sum_bytes: int
    counters: int
    together: int
    bits: int
    stored: int
    out_bytes: int
    rates: Rates

    @classmethod
    def of(cls, operands: Operands, schedule: Schedule, rates: Rates = H200) -> Cutting:
        """Of a schedule for these operands."""
        tile, cluster = schedule.tile, schedule.order.cluster
        out_bytes, lifted = element_type(operands.out).bytes, operands.selection.lifted
        ctas, (values, dense) = schedule.occupancy.ctas, box_bytes(operands, schedule)
        registers, warpgroups = (
            accumulator_registers(schedule, operands.accumulator, promoted=False),
            schedule.roles.consumers,
        )
        return cls(
            tile.m * cluster,
            tile.n,
            tile.k,
            cluster,
            ctas,
            ctas * step_clocks(operands, schedule, rates),
            cluster * values,
            dense,
            cluster * power_clocks(operands, schedule, rates),
            ctas * tile.m * tile.n * out_bytes / rates.output,
            columns_per_load(operands.a) // tile.k if lifted else 1,
            schedule.pairs,
            REGISTER_BYTES * registers * WARPGROUP_THREADS * warpgroups,
            warpgroups,
            parts_together(registers),
            element_type(operands.b).bits,
            element_type(operands.a).bits // 2 + 1 if lifted else element_type(operands.a).bits,
            out_bytes,
            rates,
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
        most = min(at_once // max(last, 1), MOST_PARTS)
        yield from self._cuts(whole, whole.tiles - last, min(most, 2) if self.pairs else most)
        if n <= self.n and not self.pairs:
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
        """Predicted clocks of a launch: those of its waves, of whole tiles and then of ranges. All sizes are at least 1."""
        at_once, steps, rates = self._at_once(sm_count), -(-k // self.k), self.rates
        rows, columns = -(-m // self.m), -(-n // self.n)
        # By whole tiles, so that all N of a number of tiles are alike.
        operands = k * (rows * self.m * self.stored + columns * self.n * self.bits) // 8
        outputs = rows * self.m * columns * self.n * self.out_bytes
        memory = (batch * (operands + outputs) + self.workspace(cut)[0]) / (cut.tiles * steps)
        walked = walked_rows(rows, columns, int(self.values * steps), self.n * k * self.bits // 8, at_once)

        def waves(items: int, parts: int, length: int) -> float:
            """Clocks of the steps of so many items, ranges of tiles in so many parts."""
            tiles = max(1, GPC_SMS * self.ctas // (self.cluster * parts))
            # The CTAs of a pair take neighbouring tiles, or the two ranges of one.
            of_cluster = -(-2 // parts) if self.pairs else self.cluster // 2
            high, wide = beside(rows, columns, walked, tiles, of_cluster)
            cached = (high * self.values + wide * self.dense) / rates.l2

            def step(active: int) -> float:
                shared = cached, memory / rates.memory, self.power / sm_count
                return rates.together(self.step, *(active * each for each in shared))

            full, left = divmod(items, at_once)
            return length * (full * step(at_once) + (step(left) if left else 0))

        clocks = rates.begin + waves(cut.whole, 1, steps) + -(-cut.whole // at_once) * self.store
        return clocks + waves(cut.cut * cut.parts, cut.parts, cut.part_steps) + self._joining(cut, at_once)

    def _joining(self, cut: Ranges, at_once: int) -> float:
        """Clocks of the busiest SM behind the steps of its ranges, until their tiles are stored."""
        rates, ranges, finished = self.rates, -(-cut.cut * cut.parts // at_once), -(-cut.cut // at_once)
        if self.pairs:
            return ranges * (rates.meet + (self.ctas * self.sum_bytes / rates.exchange + self.store) / 2)
        moved = self.ctas * self.sum_bytes / rates.sums
        read = -(-cut.parts // self.together) * rates.trip + cut.parts * moved + self.store
        return ranges * (TRIPS * rates.trip + moved) + finished * read

    def workspace(self, cut: Ranges) -> tuple[int, int]:
        """Bytes of sums in global memory, and counters, that a launch needs."""
        tiles = 0 if self.pairs else cut.cut * self.cluster
        return tiles * cut.parts * self.sum_bytes, tiles * self.counters

    def _at_once(self, sm_count: int) -> int:
        """Items that are worked on at a time."""
        together = 2 if self.pairs else 1
        return together * max(1, self.ctas * sm_count // (together * self.cluster))


@functools.lru_cache(maxsize=1024)
def _best(cutting: Cutting, m: int, n: int, k: int, batch: int, sm_count: int) -> Ranges:
    whole = cutting.whole(m, n, k, batch)
    cuts = dict.fromkeys(cutting.cuts(whole, n, sm_count))
    return min(cuts, key=lambda cut: (cutting.cycles(cut, m, n, k, batch, sm_count), cut.parts), default=whole)


def with_workspace(bound: Bound, workspace: int, counters: int) -> Bound:
    """The bound arguments of a launch, with the addresses of what `Cutting.workspace` asks for."""
    return replace(bound, pointers={**bound.pointers, "workspace": workspace, "counters": counters})
