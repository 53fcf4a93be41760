"""The time of a product in a format: measured here, recorded, or predicted, with an interval."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from louver.advice.formats import Format
from louver.advice.kernel import kernel_of
from louver.advice.rates import FEW, Known

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
