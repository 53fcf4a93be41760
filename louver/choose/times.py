"""Predicts how long a product takes, from fitted rates of a GPU.

Several activities overlap in a K step. The time of the step is the p-norm of their times.

Each SM has its own tensor core products, ring latency, metadata loads into registers and gathered rows. All working SMs
share the L2 cache, global memory and power. Fewer SMs work in a last, partial wave, so its steps are faster.

`benchmarks/fit_times.py` fits the rates to times on an H200. `docs/perf-log/60-tiles-256x176.md` says how
well prediction and measurement agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from louver.compile.plan.schedule import Schedule, lists_of
from louver.formats.dtypes import element_type, multiplied_as
from louver.formats.lists import PICKERS
from louver.ir.product import Selection, Unit
from louver.isa.bulk import COPY_CHUNK
from louver.isa.fma_block import FmaBlock
from louver.isa.metadata import columns_per_load
from louver.isa.targets import WARPGROUP_THREADS
from louver.isa.wgmma import Wgmma

CLOCK = 1755.0
"""Clocks in a microsecond: the GPU runs at 1,755 MHz."""

LINE_BYTES = 128
"""Bytes of a line of the L2 cache, and of a row of a box of operand b."""


class Operands(Protocol):
    """The properties of a product that its schedule does not hold.

    They are the element types, the contiguous dimension of b, and the way in which a selects rows of b.
    """

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
    """The rates of a GPU, in clocks unless another unit is given.

    begin: from one launch to the next, until memory sends the first bytes.
    memory: bandwidth of global memory, bytes a clock.
    product: fixed part of the time of a tensor core product of 64 rows.
    column: additional time of such a product for each of its columns.
    power: time that the power limit takes for each column of such a product, while all SMs multiply.
    base: columns whose power a product takes in addition, at any width, because it reads its part of a once.
    step: waits and releases of one K step.
    load: from one load of metadata into registers to the next.
    latency: from the issue of a copy to its arrival.
    l2: bandwidth of the L2 cache, bytes a clock. A read that SMs of a GPC share counts once.
    output: bytes of output that an SM stores in a clock.
    trip: to the L2 cache and back. An atomic, or a wait for written data, also takes one trip.
    gather: bytes a clock of gathered rows that threads copy to an SM.
    sums: bytes a clock of partial sums that an SM writes or reads.
    meet: fixed time of two paired CTAs that exchange sums.
    exchange: bytes a clock that each CTA of a pair sends.
    lanes: multiply-adds that the CUDA cores of an SM do in a clock.
    read16: time of a warp's load of 16 bytes a lane, beside multiply-adds.
    turn: from the last multiply-add of a step to the first one of the next step.
    alone: factor for a single warpgroup on an SM, which has to wait for its loads.
    norm: exponent p of the p-norm of a step.
    """

    begin: float
    memory: float
    product: float
    column: float
    power: float
    base: float
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
        """Clocks of activities that partly overlap in a step: the p-norm of their times."""
        return math.pow(sum(math.pow(each, self.norm) for each in times), 1 / self.norm)


H200 = Rates(
    begin=4430,
    memory=2520,
    product=16.3,
    column=0.383,
    power=0.567,
    base=31.8,
    step=67.3,
    load=646,
    latency=1307,
    l2=6470,
    output=58.4,
    trip=458,
    gather=44,
    sums=61.1,
    meet=776,
    exchange=20.5,
    lanes=128,
    read16=2.5,
    turn=340,
    alone=1.05,
    norm=3.07,
)
"""Rates of an H200 at 1,755 MHz. Other GPUs use them too.

`benchmarks/fit_times.py` fits all rates but `latency`, `gather` and those of CUDA cores. `gather` is fitted by hand
(`docs/perf-log/42-gather-entries.md`). The rates of CUDA cores are fitted to `results/h200/gathered-f32-128.json` and
`results/h200/gathered-f32-together.json`.
"""


LINE_CLOCKS = 1.7
"""Clocks in which an SM copies a whole line of a box, if all SMs copy.

These and the next rates are those of `benchmarks/box_copies.py`, adjusted to `benchmarks/copied_operands.py`.
"""

ROW_CLOCKS = {LINE_BYTES: 0, 64: 2.4, 32: 2.8, 16: 5.0}
"""The same of rows of 128 bytes, by the greatest power of two (bytes) at whose multiples they begin. Whole lines limit
no step, and count as 0.
"""

NARROW_ROW_CLOCKS = 5.0
"""The same of a row that is shorter than its box."""

NARROWEST_ROW_CLOCKS = 10.5
"""The same of a row of 16 bytes."""


def row_clocks(address: int, pitch: int, nbytes: int) -> float:
    """Clocks in which an SM copies a row of a box of operand b; 0 for whole lines. All arguments in bytes."""
    if nbytes < LINE_BYTES:
        return NARROW_ROW_CLOCKS if nbytes > COPY_CHUNK else NARROWEST_ROW_CLOCKS
    return ROW_CLOCKS[math.gcd(address, pitch, LINE_BYTES)]


def copy_clocks(nbytes: int, rates: Rates = H200) -> float:
    """Clocks of a copy of the dense operand, launch included."""
    return rates.begin + 2 * nbytes / rates.memory


def power_clocks(operands: Operands, schedule: Schedule, rates: Rates = H200) -> float:
    """Clocks that the power limit takes for the products of one K step on one SM.

    Multiply-adds on CUDA cores draw too little power to count: 0.
    """
    if operands.unit == "fma":
        return 0
    return _products(operands, schedule) * rates.power * (schedule.tile.n + rates.base)


def _products(operands: Operands, schedule: Schedule) -> int:
    """The number of tensor core products of 64 rows in a step."""
    tile = schedule.tile
    a, b = multiplied_as(operands.a), multiplied_as(operands.b)
    return tile.m // 64 * tile.k // Wgmma(tile.n, a, b, operands.accumulator, sparse=operands.selection.lifted).k


def step_clocks(operands: Operands, schedule: Schedule, rates: Rates = H200, row: float = 0) -> float:
    """Clocks of a K step on one SM. Resources that SMs share are left out. row: see `row_clocks`."""
    tile, ring = schedule.tile, schedule.ring
    # Stages whose products are in flight cannot be refilled yet.
    latency = rates.latency / (ring.stages - ring.in_flight)
    if operands.unit == "fma":
        return rates.together(_lanes_clocks(operands, schedule, rates), latency) + rates.turn
    products = _products(operands, schedule) * (rates.product + rates.column * tile.n)
    values, dense = (nbytes / LINE_BYTES for nbytes in box_bytes(operands, schedule))
    copies = row * dense + LINE_CLOCKS * values if row else 0
    times = [products + rates.step, latency, copies]
    if operands.selection.lifted and ring.metadata == "global":
        times.append(rates.load * tile.k / columns_per_load(operands.a))
    if operands.selection.indexed:
        gathered = lists_of(operands.pattern, schedule) * tile.k * tile.n * element_type(operands.b).bytes
        times.append(gathered / rates.gather)
    return rates.together(*times)


def box_bytes(operands: Operands, schedule: Schedule) -> tuple[float, float]:
    """Bytes of operands a and b that box copies bring to an SM in one step. Gathered rows of b do not come by boxes."""
    tile, lifted = schedule.tile, operands.selection.lifted
    values = tile.m * tile.k * element_type(operands.a).bits / (16 if lifted else 8)
    gathered = lists_of(operands.pattern, schedule) > 0
    return values, 0 if gathered else tile.n * tile.k * element_type(operands.b).bytes


def _lanes_clocks(operands: Operands, schedule: Schedule, rates: Rates) -> float:
    """Clocks of a step's multiply-adds on CUDA cores, and of the loads of their operands.

    A thread loads four elements at a time, for each of its rows and each of its columns. It loads the columns again for
    each block that picks other rows.
    """
    tile = schedule.tile
    columns = FmaBlock(tile.n).lane_columns
    rows = tile.m * tile.n // (schedule.roles.consumers * WARPGROUP_THREADS * columns)
    apart = schedule.ring.metadata != "global" and not operands.together(PICKERS * schedule.blocks)
    loads = (rows + columns * (schedule.blocks if apart else 1)) / (4 * rows * columns)
    one = schedule.roles.consumers * schedule.occupancy.resident == 1
    return tile.m * tile.n * tile.k / rates.lanes * (1 + rates.read16 * loads) * (rates.alone if one else 1)
