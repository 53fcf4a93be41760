"""Rates of GPUs, fitted to records of their times. `benchmarks/fit_advice.py` writes the files that are read here."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Final

from louver.advice.formats import Format, Kind
from louver.library.times import H200, Rates

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
