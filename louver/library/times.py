"""Predicts how long a product takes, by the rates of a GPU.

A step of K on an SM takes the p-norm of three times, none of which hides all of the others: its products, its metadata where registers
load them, and the ring's latency. A launch takes the p-norm of the busiest SM and of global memory. The rates are fitted to times
on an H200 by `benchmarks/fit_times.py`; `docs/perf-log.md` says how well they agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import multiplied_as
from louver.formats.lists import PICKERS
from louver.ir.product import Selection, Unit
from louver.isa.fma_block import FmaBlock
from louver.isa.prepack import columns_per_load
from louver.isa.targets import WARPGROUP_THREADS
from louver.isa.wgmma import Wgmma

CLOCK = 1755.0
"""Clocks in a microsecond."""


class Operands(Protocol):
    """The facts of a product beside its schedule: element types, the contiguous dimension of b, and the way in which a selects its rows."""

    @property
    def a(self) -> str: ...
    @property
    def b(self) -> str: ...
    @property
    def b_major(self) -> Literal["k", "mn"]: ...
    @property
    def selection(self) -> Selection: ...
    @property
    def unit(self) -> Unit: ...
    def together(self, rows: int) -> bool: ...
    @property
    def out(self) -> str: ...
    @property
    def accumulator(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Rates:
    """Clocks, unless another unit is given.

    launch: from one launch to the next. memory: bytes a clock of global memory. least: of a product of 64 rows, by consumer warpgroups
    (1, or more). product, column: of one, and of each of its columns. load: from one load of metadata by
    registers to the next. latency: from a copy's issue to its arrival. read: of a step's metadata from shared memory. output:
    bytes a clock that an SM stores. trip: to the L2 cache and back, a fence or an atomic too. sums: bytes a clock of partial sums that
    an SM writes or reads. lanes: multiply-adds of an SM's CUDA cores in a clock. read16: of a warp's load of 16 bytes a lane, beside
    multiply-adds. turn: from the last of a step's multiply-adds to the first of the next one's. alone: the factor for one warpgroup on an SM, which waits for its loads. norm: the p of the p-norms.
    """

    launch: float
    memory: float
    least: tuple[float, float]
    product: float
    column: float
    load: float
    latency: float
    read: float
    output: float
    trip: float
    sums: float
    lanes: float
    read16: float
    turn: float
    alone: float
    norm: float

    def together(self, *times: float) -> float:
        """The time of what overlaps in part."""
        return math.pow(sum(math.pow(each, self.norm) for each in times), 1 / self.norm)


H200 = Rates(
    launch=3719,
    memory=2729,
    least=(42.6, 36.2),
    product=22.4,
    column=0.513,
    load=692,
    latency=670,
    read=47,
    output=49.8,
    trip=726,
    sums=54.9,
    lanes=128,
    read16=2.5,
    turn=340,
    alone=1.05,
    norm=1.87,
)
"""Fitted at 1,755 MHz; those of CUDA cores by hand, to `results/h200/gathered-f32-128.json` and `gathered-f32-together.json`. Other GPUs take them too."""


def step_clocks(operands: Operands, schedule: Schedule, rates: Rates = H200) -> float:
    """Clocks of a step of K on one SM. Of gathered rows that is too few: no rate of gathering has been fitted."""
    lifted = operands.selection.lifted
    tile, ring = schedule.tile, schedule.ring
    one, more = rates.least
    # A stage is refilled once its products are done, and is waited for when all others are.
    latency = rates.latency / max(ring.stages - 1 - ring.in_flight, 0.5)
    if operands.unit == "fma":
        return rates.together(_lanes_clocks(operands, schedule, rates), latency) + rates.turn
    least = one if schedule.roles.consumers == 1 else more
    product = max(least, rates.product + rates.column * tile.n)
    a, b = multiplied_as(operands.a), multiplied_as(operands.b)
    depth = Wgmma(tile.n, a, b, operands.accumulator, sparse=lifted).k
    products = tile.m // 64 * tile.k // depth * product
    if not lifted:
        return rates.together(products, latency)
    if ring.metadata == "global":
        return rates.together(products, latency, rates.load * tile.k / columns_per_load(operands.a))
    return rates.together(products, latency) + rates.read


def _lanes_clocks(operands: Operands, schedule: Schedule, rates: Rates) -> float:
    """Clocks of a step's multiply-adds on CUDA cores, and of the loads of what they multiply. A thread loads four elements at a time: of each
    of its rows, and of each of its columns, again for each block that picks other rows.
    """
    tile = schedule.tile
    columns = FmaBlock(tile.n).lane_columns
    rows = tile.m * tile.n // (schedule.roles.consumers * WARPGROUP_THREADS * columns)
    apart = schedule.ring.metadata != "global" and not operands.together(PICKERS * schedule.blocks)
    loads = (rows + columns * (schedule.blocks if apart else 1)) / (4 * rows * columns)
    one = schedule.roles.consumers * schedule.occupancy.resident == 1
    return tile.m * tile.n * tile.k / rates.lanes * (1 + rates.read16 * loads) * (rates.alone if one else 1)
