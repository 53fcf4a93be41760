"""Rates of GPUs, fitted to records of their times. `benchmarks/fit_advice.py` writes the files that are read here.

The kernel that a product is taken to run, and its clocks at given rates.

A dense product of cuBLAS is described by the schedule that Louver would choose for it: cuBLAS's own tiles are unknown. Its
rates, fitted to cuBLAS's times, make up for that.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any, Final, Literal, TypeAlias

from louver.advice.formats import Format, Kind
from louver.choose.configure import choose
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.choose.times import CLOCK, H200, Rates, copy_clocks
from louver.compile.plan.schedule import Schedule
from louver.formats.dtypes import element_type
from louver.isa.targets import target

FEW: Final = 256
"""Residuals are kept apart for up to so many tokens and for more."""

UNSEEN: Final = 2.0
"""Factor of an interval's logarithms for products unlike all recorded ones."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Measured over predicted time of rows that the fit did not see: the 5th and the 95th percentile.

    rows: of the kind, element type and class of tokens. With fewer than ten of them the percentiles are of all recorded rows
    of the GPU.
    """

    low: float
    high: float
    rows: int

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high or self.rows < 0:
            raise ValueError(f"residuals are positive, low to high, of 0 rows or more, got {self}")

    def around(self, us: float, seen: bool) -> tuple[float, float]:
        """The interval of a predicted time. seen: whether such products are among the rows."""
        wider = 1.0 if seen else UNSEEN
        return us * min(self.low, 1.0) ** wider, us * max(self.high, 1.0) ** wider


@dataclass(frozen=True, slots=True)
class Fitted:
    """The rates of a kind of product in an element type. few, many: residuals up to `FEW` tokens, and above."""

    kind: Kind
    element: str
    rates: Rates
    few: Residuals
    many: Residuals


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded product. us: of a call. spread: of its bursts, as a share of it. unseen: µs predicted by a fit that saw no row
    of the same weight.
    """

    us: float
    spread: float
    unseen: float


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of a GPU.

    device: its name. records: files and dates of the fitted records. fitted: by kind and element type.
    table: recorded products by format, M, N and K.
    conversion: µs of pruning and compressing a byte of a dense weight, by kind.
    """

    device: str
    records: Mapping[str, str]
    fitted: Mapping[tuple[Kind, str], Fitted]
    table: Mapping[tuple[Format, int, int, int], Recorded]
    conversion: Mapping[str, float]

    def fitted_for(self, format: Format) -> tuple[Fitted, bool]:
        """The rates for a format, and whether they are of its element type. Else they are those of the first type of its kind."""
        own = self.fitted.get((format.kind, format.element))
        if own is not None:
            return own, True
        return next(each for (kind, _), each in self.fitted.items() if kind == format.kind), False

    def unlike(self, format: Format, m: int, n: int, k: int) -> str:
        """In what a product differs from all recorded ones; "" if it does not."""
        fitted, own_type = self.fitted_for(format)
        if not own_type:
            return f"no record of {format.element}, rates of {fitted.element}"
        if not (fitted.few if n <= FEW else fitted.many).rows:
            return f"no record of {'up to' if n <= FEW else 'more than'} {FEW} tokens"
        sizes = [(rows * columns, tokens) for _, rows, tokens, columns in self.table]
        weights, most = [weight for weight, _ in sizes], max(tokens for _, tokens in sizes)
        if not min(weights) <= m * k <= max(weights):
            return f"no record of a weight of so {'few' if m * k < min(weights) else 'many'} elements"
        return f"no record of more than {most} tokens" if n > most else ""

    @classmethod
    def of(cls, text: str) -> Known:
        """The content of a file."""
        data: dict[str, Any] = json.loads(text)
        fitted: dict[tuple[Kind, str], Fitted] = {}
        for each in data["fitted"]:
            kind, element = each["kind"], each["element"]
            residuals = (Residuals(*each[name]) for name in ("few", "many"))
            fitted[kind, element] = Fitted(kind, element, replace(H200, **each["rates"]), *residuals)
        table = {(Format.parse(name), m, n, k): Recorded(*taken) for name, m, n, k, *taken in data["table"]}
        return cls(data["device"], data["records"], fitted, table, data["conversion"])


@functools.cache
def known() -> Mapping[str, Known]:
    """The GPUs whose times are recorded, by name."""
    folder = files("louver.advice").joinpath("data")
    names = sorted(each.name for each in folder.iterdir() if each.name.startswith("rates-"))
    found = (Known.of(folder.joinpath(name).read_text(encoding="utf-8")) for name in names)
    return {each.device: each for each in found}


def named(device: str) -> Known | None:
    """What is known of a GPU with this name, or with this word in its name, such as "H100"; None: nothing.

    Raises TypeError for what is no text, and ValueError for a word of several names.
    """
    if type(device) is not str:
        raise TypeError(f'device is the name of a GPU, such as "H100", got {device!r}')
    exact = known().get(device)
    if exact is not None:
        return exact
    fitting = [name for name in known() if device.lower() in name.lower().split()]
    if len(fitting) > 1:
        raise ValueError(
            f"device is one GPU, got {device!r}, which is a word of {', '.join(fitting)}: give a whole name"
        )
    return known()[fitting[0]] if fitting else None


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
    schedule = choose(problem, m, n, target(TARGET), SM_COUNT, aligned_output=True, k=k, cuts=format.kind != "dense")
    depth, cutting = demand.depth(k, schedule.ring.metadata), Cutting.of(demand, schedule)
    cut = cutting.best(m, n, depth, 1, SM_COUNT) if schedule.cuts else cutting.whole(m, n, depth, 1)
    # Rows of single tokens are read: tokens that `linear` gets are copied first, to rows of whole chunks.
    copied = n * k * element_type(format.element).bytes if format.kind == "vectors" else 0
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
