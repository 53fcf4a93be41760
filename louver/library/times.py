"""Predicts how long a product takes, by the rates of a GPU.

Several things overlap in a step of K: the p-norm of their times is its time. Products, the ring's latency, metadata by registers and gathered rows
are an SM's own. The L2 cache, global memory and power are shared by the SMs at work. A last wave has fewer of them, so its steps are faster. The rates are fitted to times on an H200 by `benchmarks/fit_times.py`;
`docs/perf-log.md` says how well they agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from louver.compile.plan.schedule import Schedule, lists_of
from louver.formats.dtypes import element_type, multiplied_as
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
    def pattern(self) -> str | None: ...
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

    begin: from one launch to the next, until memory sends the first bytes. memory: bytes a clock of global memory. product,
    column: of a product of 64 rows, and of each of its columns. power: of each of its columns, while all SMs multiply. step: of a step's waits and releases. load: from one load of metadata by
    registers to the next. latency: from a copy's issue to its arrival. l2: bytes a clock of the L2 cache. A read that SMs of a GPC share
    counts once. output: bytes a clock that an SM stores. trip: to the L2
    cache and back, also of an atomic or of a wait for what was written. gather: bytes a clock of rows that threads copy to an SM. sums:
    bytes a clock of partial sums that an SM writes or reads. meet, exchange: of a pair of CTAs that exchange sums, and bytes a clock that each sends. lanes: multiply-adds of an SM's CUDA cores in a clock. read16: of a warp's
    load of 16 bytes a lane, beside multiply-adds. turn: from the last of a step's multiply-adds to the first of the next one's. alone:
    the factor for one warpgroup on an SM, which waits for its loads. norm: the p of a step's p-norm.
    """

    begin: float
    memory: float
    product: float
    column: float
    power: float
    step: float
    load: float
    latency: float
    l2: float
    output: float
    trip: float
    gather: float
    sums: float
    meet: float
    exchange: float
    lanes: float
    read16: float
    turn: float
    alone: float
    norm: float

    def together(self, *times: float) -> float:
        """Clocks of what overlaps in part in a step."""
        return math.pow(sum(math.pow(each, self.norm) for each in times), 1 / self.norm)


H200 = Rates(
    begin=4098,
    memory=2536,
    product=14.1,
    column=0.384,
    power=0.682,
    step=121,
    load=854,
    latency=1307,
    l2=3494,
    output=47.1,
    trip=446,
    gather=44,
    sums=57,
    meet=1059,
    exchange=18.9,
    lanes=128,
    read16=2.5,
    turn=340,
    alone=1.05,
    norm=3.81,
)
"""Fitted at 1,755 MHz; by hand that of gathers (`docs/perf-log.md`, section 42), and those of CUDA cores to `results/h200/gathered-f32-128.json` and
`gathered-f32-together.json`. Other GPUs take them too.
"""


def power_clocks(operands: Operands, schedule: Schedule, rates: Rates = H200) -> float:
    """Clocks that the power of a step's products takes on one SM; 0 of multiply-adds, which draw too little to count."""
    return 0 if operands.unit == "fma" else _products(operands, schedule) * rates.power * schedule.tile.n


def _products(operands: Operands, schedule: Schedule) -> int:
    """Products of 64 rows in a step."""
    tile = schedule.tile
    a, b = multiplied_as(operands.a), multiplied_as(operands.b)
    return tile.m // 64 * tile.k // Wgmma(tile.n, a, b, operands.accumulator, sparse=operands.selection.lifted).k


def step_clocks(operands: Operands, schedule: Schedule, rates: Rates = H200) -> float:
    """Clocks of a step of K on one SM, as far as they are its own."""
    tile, ring = schedule.tile, schedule.ring
    # The stages of products in flight are not refilled meanwhile.
    latency = rates.latency / (ring.stages - ring.in_flight)
    if operands.unit == "fma":
        return rates.together(_lanes_clocks(operands, schedule, rates), latency) + rates.turn
    products = _products(operands, schedule) * (rates.product + rates.column * tile.n)
    times = [
        products + rates.step,
        latency,
    ]
    if operands.selection.lifted and ring.metadata == "global":
        times.append(rates.load * tile.k / columns_per_load(operands.a))
    if operands.selection.indexed:
        gathered = lists_of(operands.pattern, schedule) * tile.k * tile.n * element_type(operands.b).bytes
        times.append(gathered / rates.gather)
    return rates.together(*times)


def box_bytes(operands: Operands, schedule: Schedule) -> tuple[float, float]:
    """Bytes of a step's operands a and b that are copied to an SM by boxes."""
    tile, lifted = schedule.tile, operands.selection.lifted
    values = tile.m * tile.k * element_type(operands.a).bits / (16 if lifted else 8)
    gathered = lists_of(operands.pattern, schedule) > 0
    return values, 0 if gathered else tile.n * tile.k * element_type(operands.b).bytes


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
