"""The order of tiles, and which tiles of a launch are cut into ranges of K, and into how many, by predicted clocks.

A launch visits the tiles of a band column by column. A band is the tile rows that are visited before the next column
begins. Its height, and the tiles that run side by side on the GPU, decide the time of a launch. The same model predicts the
time of a launch without a cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.choose.times import H200, Operands, Rates, box_bytes, power_clocks, step_clocks
from louver.compile.plan.layout import parts_together
from louver.compile.plan.schedule import Schedule, accumulator_registers
from louver.formats.dtypes import element_type
from louver.isa.metadata import columns_per_load
from louver.isa.targets import WARPGROUP_THREADS

Numbers: TypeAlias = NDArray[np.intp]

WAVES_SEEN = 32
"""Waves that are compared. Later waves are like them."""

PARTS = range(1, 9)
"""Waves of a band to try, and columns of a wave. If a band is a whole number of waves, no wave has rows of two bands."""

LOW_BANDS = (2, 4, 8, 16)
"""Other band heights to try, in rows of tiles. With few columns of tiles, a GPC then reads few rows and few columns."""

GPC_SHARE = 0.1
"""Weight of a byte that GPCs read from the L2 cache, beside one that a wave reads from memory. With 0.1 to 0.25, most
times in `docs/perf-log/58-gpc-order.md` hardly differ.
"""

GPCS = 8
"""The number of GPCs. Consecutive CTAs without clusters go to one GPC."""

CLUSTER_GPCS = np.array((*(0,) * 4, *(*range(GPCS),) * 4, *(*range(1, GPCS),) * 4))
"""The GPC of each cluster of two CTAs, as observed on two H200s."""


def tiles_of_cluster(parts: int, ctas: int, *, pairs: bool) -> int:
    """The number of consecutive tiles that a cluster takes; 0 without clusters.

    The two CTAs of a pair take neighbouring tiles, or the two ranges of one tile. The CTAs of other clusters take one
    tile of the cluster.

    parts: ranges of each tile.
    ctas: CTAs of a cluster.
    """
    if pairs:
        return -(-2 // parts)
    return min(ctas - 1, 1)


@functools.lru_cache(maxsize=4096)
def beside(rows: int, columns: int, walked: int, tiles: int, cluster: int) -> tuple[float, float]:
    """The numbers of different rows and of different columns among the tiles of a GPC, each divided by the number of
    tiles.

    walked: tile rows of a band.
    tiles: tiles that a GPC works on at a time.
    cluster: see `tiles_of_cluster`.
    """
    numbers = np.arange(min(GPCS * tiles if cluster else tiles, rows * columns))
    gpcs = CLUSTER_GPCS[numbers // cluster % len(CLUSTER_GPCS)] if cluster else 0
    row, column = _place(rows, columns, walked, numbers)
    high, wide = len(np.unique(gpcs * rows + row)), len(np.unique(gpcs * columns + column))
    return high / len(numbers), wide / len(numbers)


def _place(rows: int, columns: int, walked: int, tiles: Numbers) -> tuple[Numbers, Numbers]:
    """Rows and columns of tiles."""
    band, inside = np.divmod(tiles, walked * columns)
    column, row = np.divmod(inside, np.minimum(walked, rows - band * walked))
    return band * walked + row, column


def walked_rows(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int, cluster: int = 0) -> int:
    """The band height, in rows of tiles, for which waves and GPCs read the fewest bytes.

    rows, columns: rows and columns of tiles.
    row_bytes: bytes of the left operand that a row of tiles reads.
    column_bytes: bytes of the right operand that a column of tiles reads.
    at_once: tiles of a wave. Ranges of a tile run beside each other and count once.
    cluster: see `tiles_of_cluster`.

    All sizes but `cluster` are at least 1.
    """
    if columns == 1:
        return rows
    common = math.gcd(row_bytes, column_bytes)
    return _fewest(rows, columns, row_bytes // common, column_bytes // common, at_once, cluster)


@functools.lru_cache(maxsize=4096)
def _fewest(rows: int, columns: int, row_bytes: int, column_bytes: int, at_once: int, cluster: int) -> int:
    """The band height with the fewest bytes; of equal ones the lowest."""
    wave = min(at_once, rows * columns)
    # For outputs of many columns, bands of whole waves are low. Then a wave may have a part of a band's columns.
    waves = (each * at_once // columns for each in PARTS)
    # The two tiles of a cluster may share a row. Without clusters, neighbours share a column: it has more bytes.
    low = (1, *LOW_BANDS, rows) if cluster else (*LOW_BANDS, rows)
    tried = low if wave < at_once else (*low, *waves, *(at_once // each for each in PARTS))
    heights = np.unique(np.clip(tried, 1, rows))
    starts = np.arange(0, min(rows * columns, WAVES_SEEN * at_once), at_once)
    high, wide = _touched(rows, columns, heights[:, np.newaxis], starts, at_once)
    by_waves = (row_bytes * high + column_bytes * wide).mean(1)
    best, chosen = math.inf, rows
    for each in np.argsort(by_waves, kind="stable"):
        # The tiles of GPCs take longer to count.
        if by_waves[each] >= best:
            break
        height = int(heights[each])
        share = beside(rows, columns, height, max(1, at_once // GPCS), cluster)
        by_gpcs = wave * (row_bytes * share[0] + column_bytes * share[1])
        best, chosen = min((best, chosen), (by_waves[each] + GPC_SHARE * by_gpcs, height))
    return chosen


def _touched(rows: int, columns: int, walked: Numbers, starts: Numbers, at_once: int) -> tuple[Numbers, Numbers]:
    """The numbers of rows and columns of tiles that the waves from these tiles on touch."""
    ends, band = np.minimum(starts + at_once, rows * columns), walked * columns
    first, last = starts // band, (ends - 1) // band
    begin, stop = starts - first * band, ends - last * band
    # The last band may have fewer rows.
    height = np.minimum(walked, rows - last * walked)
    high = np.minimum(walked, band - begin) + (last - first - 1) * walked + np.minimum(height, stop)
    wide = np.where(
        last - first > 1, columns, np.minimum(columns, columns - begin // walked + (stop - 1) // height + 1)
    )
    alone = first == last
    high = np.where(alone, np.minimum(height, stop - begin), high)
    return high, np.where(alone, (stop - 1) // height - begin // height + 1, wide)


TRIPS = 3
"""L2 round trips before a range knows whether it is the last one of its tile.

They are its writes, the wait for them, and the atomic.
"""

REGISTER_BYTES = 4

MOST_PARTS = 32
"""Most ranges of a tile. The CTA of the last range reads all of them alone."""

MOST_WAVES = 4
"""Most waves of ranges. More of them hardly improve the balance of the SMs, and take more memory."""

MOST_CUT_WAVES = 16
"""Most waves of tiles in a launch that is cut, the last, partial wave included.

After more waves, a cut of the last one gains nothing in the mean (`docs/perf-log/60-tiles-256x176.md`).
"""


@dataclass(frozen=True, slots=True)
class Ranges:
    """How a launch cuts K.

    tiles: tiles of the product.
    whole: tiles that are not cut.
    parts: ranges of each tile that is cut.
    part_steps: K steps of a range. The last range of a tile has the remaining steps.
    """

    tiles: int
    whole: int
    parts: int
    part_steps: int

    @property
    def cut(self) -> int:
        """The number of tiles that are cut."""
        return self.tiles - self.whole

    @property
    def items(self) -> int:
        """The number of whole tiles and ranges."""
        return self.whole + self.cut * self.parts

    @property
    def beside(self) -> int:
        """The ranges of a tile that run beside each other in the first wave; 1 if its tiles are whole."""
        return 1 if self.whole else self.parts

    @property
    def sizes(self) -> dict[str, int]:
        """The cut by the names of the kernel's parameters."""
        return {"whole": self.whole, "parts": self.parts, "part_steps": self.part_steps}

    def of(self, tiles: int) -> Ranges:
        """The same cut for a launch with fewer tiles."""
        return Ranges(tiles, min(self.whole, tiles), self.parts, self.part_steps)


@dataclass(frozen=True, slots=True)
class Cutting:
    """The properties of a kernel that decide how long a launch with a given cut takes.

    For gathered rows, K counts the rows that are multiplied. A cluster tile is the tiles of all CTAs of a cluster.

    m, n, k: rows and columns of a cluster tile, and K elements of a step.
    cluster: CTAs of a cluster that share tiles of the dense operand.
    ctas: CTAs on an SM.
    step: clocks of a K step of all CTAs on an SM, without resources that SMs share.
    values: bytes of a that boxes copy in a step, for a cluster tile.
    dense: bytes of b that boxes copy in a step.
    power: clocks that the power limit takes in a step, for a cluster tile.
    store: clocks of the epilogue, of all CTAs on an SM.
    granule: the number of steps in a range is a multiple of it.
    pairs: whether the two ranges of a tile belong to a cluster and exchange sums.
    sum_bytes: bytes of the sums of one CTA's tile.
    counters: counters of one CTA's tile.
    together: parts that a thread reads at a time.
    bits: bits of an element of b.
    stored: bits that a stores for one element of K, metadata included.
    out_bytes: bytes of an output element.
    rates: rates of the GPU.
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
    def of(cls, operands: Operands, schedule: Schedule, rates: Rates = H200, row: float = 0) -> Cutting:
        """The properties of a kernel with this schedule, for these operands. row: see `times.row_clocks`."""
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
            ctas * step_clocks(operands, schedule, rates, row),
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
        """The launch of `batch` products a [m, k] @ b [k, n] without a cut."""
        tiles = -(-m // self.m) * -(-n // self.n) * batch
        return Ranges(tiles, tiles, 1, -(-k // self.k))

    def best(self, m: int, n: int, k: int, batch: int, sm_count: int) -> Ranges:
        """The cut with the least predicted time; of equal times, the one with the fewest parts.

        Nothing is cut where `cuts` yields nothing.
        """
        return _best(self, m, n, k, batch, sm_count)

    def cuts(self, whole: Ranges, n: int, sm_count: int) -> Iterator[Ranges]:
        """The cuts that are worth a prediction.

        They cut the tiles of the last, partial wave, so that all of them run at once. They cut all tiles only where
        there is one column of tiles. With several columns, CTAs at different K would lose the data that they share in
        the L2 cache. They cut nothing in launches of more than `MOST_CUT_WAVES` waves.
        """
        at_once = self._at_once(sm_count)
        if whole.tiles > MOST_CUT_WAVES * at_once:
            return
        last = whole.tiles % at_once
        most = min(at_once // max(last, 1), MOST_PARTS)
        yield from self._cuts(whole, whole.tiles - last, min(most, 2) if self.pairs else most)
        if n <= self.n and not self.pairs:
            yield from self._cuts(whole, 0, min(MOST_PARTS, MOST_WAVES * at_once // whole.tiles))

    def _cuts(self, whole: Ranges, start: int, most: int) -> Iterator[Ranges]:
        """Cuts of all tiles from number `start` on, into 2 to `most` parts."""
        steps = whole.part_steps
        for wanted in range(2, most + 1):
            length = -(-steps // (wanted * self.granule)) * self.granule
            parts = -(-steps // length)
            if parts > 1 and start < whole.tiles:
                yield Ranges(whole.tiles, start, parts, length)

    def cycles(self, cut: Ranges, m: int, n: int, k: int, batch: int, sm_count: int) -> float:
        """Predicted clocks of a launch: the waves of whole tiles, then the waves of ranges.

        All sizes are at least 1.
        """
        at_once, steps, rates = self._at_once(sm_count), -(-k // self.k), self.rates
        rows, columns = -(-m // self.m), -(-n // self.n)
        # Sizes are rounded up to whole tiles, so that all N with the same number of tiles have the same time.
        operands = k * (rows * self.m * self.stored + columns * self.n * self.bits) // 8
        outputs = rows * self.m * columns * self.n * self.out_bytes
        memory = (batch * (operands + outputs) + self.workspace(cut)[0]) / (cut.tiles * steps)
        row_bytes, column_bytes = int(self.values * steps), self.n * k * self.bits // 8
        taken = tiles_of_cluster(cut.beside, self.cluster, pairs=self.pairs)
        walked = walked_rows(rows, columns, row_bytes, column_bytes, max(1, at_once // cut.beside), taken)

        def waves(items: int, parts: int, length: int) -> float:
            """Clocks of the steps of these items. Each has `length` steps and is one of the `parts` ranges of a tile."""
            taken = tiles_of_cluster(parts, self.cluster, pairs=self.pairs)
            high, wide = beside(rows, columns, walked, max(1, at_once // (GPCS * parts)), taken)
            cached = (high * self.values + wide * self.dense) / rates.l2

            def step(active: int) -> float:
                shared = cached, memory / rates.memory, self.power / sm_count
                return rates.together(self.step, *(active * each for each in shared))

            full, left = divmod(items, at_once)
            return length * (full * step(at_once) + (step(left) if left else 0))

        clocks = rates.begin + waves(cut.whole, 1, steps) + -(-cut.whole // at_once) * self.store
        return clocks + waves(cut.cut * cut.parts, cut.parts, cut.part_steps) + self._joining(cut, at_once)

    def _joining(self, cut: Ranges, at_once: int) -> float:
        """Clocks that the busiest SM needs after the steps of its ranges, until their tiles are stored."""
        rates, ranges, finished = self.rates, -(-cut.cut * cut.parts // at_once), -(-cut.cut // at_once)
        if self.pairs:
            return ranges * (rates.meet + (self.ctas * self.sum_bytes / rates.exchange + self.store) / 2)
        moved = self.ctas * self.sum_bytes / rates.sums
        read = -(-cut.parts // self.together) * rates.trip + cut.parts * moved + self.store
        return ranges * (TRIPS * rates.trip + moved) + finished * read

    def workspace(self, cut: Ranges) -> tuple[int, int]:
        """Bytes of sums in global memory, and the number of counters, that a launch needs."""
        tiles = 0 if self.pairs else cut.cut * self.cluster
        return tiles * cut.parts * self.sum_bytes, tiles * self.counters

    def _at_once(self, sm_count: int) -> int:
        """The number of items that the GPU works on at a time."""
        together = 2 if self.pairs else 1
        return together * max(1, self.ctas * sm_count // (together * self.cluster))


@functools.lru_cache(maxsize=1024)
def _best(cutting: Cutting, m: int, n: int, k: int, batch: int, sm_count: int) -> Ranges:
    whole = cutting.whole(m, n, k, batch)
    cuts = dict.fromkeys(cutting.cuts(whole, n, sm_count))
    return min(cuts, key=lambda cut: (cutting.cycles(cut, m, n, k, batch, sm_count), cut.parts), default=whole)
