"""The time of a product in a format: measured here, recorded, or predicted from its kernel, with an interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, TypeAlias

from louver.advice.formats import Format
from louver.advice.rates import FEW, Known
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.isa.targets import target
from louver.library.configure import choose
from louver.library.demand import Demand
from louver.library.ranges import Cutting, Ranges
from louver.library.times import CLOCK, Rates, copy_clocks

TARGET: Final = "sm_90a"
SM_COUNT: Final = 132
"""Of the GPUs whose times are recorded."""

LIMITS: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("memory",),
    "tensor cores": ("product", "column", "step"),
    "power": ("power", "base"),
    "L2 cache": ("l2",),
    "launch": ("begin",),
    "latency": ("latency", "load", "trip", "meet"),
    "output": ("output",),
    "gathering": ("gather",),
    "partial sums": ("sums", "exchange"),
}
"""Resources, and the rates that say how fast each of them is."""

_BANDWIDTHS: Final = frozenset(("memory", "l2", "output", "gather", "sums", "exchange"))
"""Rates in bytes a clock: more is faster. All others are times."""

_STEP: Final = 1.01


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel of a product. sizes: M, N and the K that is multiplied. copied: bytes of tokens that are copied first."""

    demand: Demand
    schedule: Schedule
    cut: Ranges
    sizes: tuple[int, int, int]
    copied: int

    def us(self, rates: Rates) -> float:
        """Microseconds of a call, the copy of its tokens included."""
        cutting = Cutting.of(self.demand, self.schedule, rates)
        clocks = cutting.cycles(self.cut, *self.sizes, 1, SM_COUNT)
        return (clocks + (copy_clocks(self.copied, rates) if self.copied else 0)) / CLOCK

    def limit(self, rates: Rates) -> str:
        """The resource that limits the call: the one with which its time changes most."""
        now, found = self.us(rates), dict[str, float]()
        for resource, names in LIMITS.items():
            slower = {n: getattr(rates, n) * (1 / _STEP if n in _BANDWIDTHS else _STEP) for n in names}
            found[resource] = math.log(self.us(replace(rates, **slower)) / now)
        return max(found, key=lambda resource: found[resource])


assert {name for names in LIMITS.values() for name in names} <= {field.name for field in fields(Rates)}


@functools.lru_cache(maxsize=8192)
def kernel_of(format: Format, m: int, n: int, k: int) -> Kernel:
    """The kernel of `linear` with a weight [m, k] and n tokens."""
    problem = format.problem
    demand = Demand.of_problem(problem)
    schedule = choose(problem, m, n, target(TARGET), SM_COUNT, aligned_output=True, k=k, cuts=True)
    depth, cutting = demand.depth(k, schedule.ring.metadata), Cutting.of(demand, schedule)
    cut = cutting.best(m, n, depth, 1, SM_COUNT) if schedule.cuts else cutting.whole(m, n, depth, 1)
    # A matrix of one token is read in place.
    copied = n * k * element_type(format.element).bytes if format.kind == "vectors" and n > 1 else 0
    return Kernel(demand, schedule, cut, (m, n, depth), copied)


Origin: TypeAlias = Literal["measured", "table", "model"]
"""measured: on the GPU at hand. table: this very product in a record. model: predicted by fitted rates."""

ORIGINS: Final[tuple[Origin, ...]] = ("model", "table", "measured")
"""From the least certain on: a sum has the first of those of its parts."""


@dataclass(frozen=True, slots=True)
class Time:
    """µs of a product. low, high: of a measurement, the spread of its bursts; of a prediction, so that 90% of the rows that
    the fit did not see lie between them. note: what widened the interval.
    """

    us: float
    low: float
    high: float
    origin: Origin
    note: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.us <= self.high:
            raise ValueError(f"a time is positive and inside its interval, got {self.us} in {self.low} to {self.high}")

    @classmethod
    def spread(cls, us: float, spread: float, origin: Origin) -> Time:
        """A time that was taken. spread: the greatest distance of a burst from the median, as a share of it."""
        return cls(us, us * (1 - spread), us * (1 + spread), origin)


Measured: TypeAlias = Mapping[tuple[Format, int, int, int], Time | str]
"""Times measured on the GPU at hand, or why it refuses a product, by format, M, N and K."""


@functools.lru_cache(maxsize=8192)
def predicted(format: Format, m: int, n: int, k: int, device: Known) -> Time:
    """The predicted time of `linear` on a known GPU."""
    fitted, unlike = device.fitted_for(format)[0], device.unlike(format, m, n, k)
    us = kernel_of(format, m, n, k).us(fitted.rates)
    interval = (fitted.few if n <= FEW else fitted.many).around(us, not unlike)
    return Time(us, *interval, "model", unlike)


def time_of(format: Format, m: int, n: int, k: int, device: Known | None, measured: Measured) -> Time | None:
    """The best known time: measured, else recorded, else predicted; None where it is refused, or nothing is known."""
    taken = measured.get((format, m, n, k))
    if taken is not None or device is None:
        return None if isinstance(taken, str) else taken
    recorded = device.table.get((format, m, n, k))
    if recorded is None:
        return predicted(format, m, n, k, device)
    return Time.spread(recorded.us, recorded.spread, "table")
