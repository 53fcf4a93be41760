"""Compares formats for one product: what `louver.advise` returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from louver.advice.formats import Format, Kind, Loss, formats_of, losses
from louver.advice.rates import Known, Measured, Time, kernel_of, known, named, time_of
from louver.formats.dtypes import integer
from louver.frontend.problem import MAX_SIZE
from louver.runtime.device import NoDevice, current_device

ELSEWHERE: Final = "NVIDIA H200"
"""The GPU that advice is for on a machine without one."""

EIGHT_BITS: Final = ("e4m3", "s8")

STEPS: Final[Mapping[Kind, str]] = {"dense": "", "2:4": "prune, compress", "vectors": "prune, compress"}


@dataclass(frozen=True, slots=True)
class Row:
    """A format. time: None if it is unknown, or if there is no such product; refusal then says why.

    nbytes: of the weight. limit: the resource that limits the product; "" without rates. conversion: steps from a dense
    weight of 16 bits; conversion_us: of pruning and compressing on the GPU, None if not recorded. loss: see `Loss`.
    """

    format: Format
    time: Time | None
    refusal: str
    nbytes: int
    limit: str
    conversion: str
    conversion_us: float | None
    loss: Loss | None


@dataclass(frozen=True, slots=True)
class Advice:
    """Formats of a weight [m, k] multiplied with n tokens, the fastest first. device: the GPU. notes: what to know."""

    m: int
    n: int
    k: int
    device: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def __getitem__(self, format: str | Format) -> Row:
        """The row of a format. Raises KeyError for one that was not compared."""
        wanted = Format.parse(format)
        for row in self.rows:
            if row.format == wanted:
                return row
        raise KeyError(f"{wanted} was not compared; the formats are {', '.join(str(row.format) for row in self.rows)}")

    @property
    def best(self) -> Row | None:
        """The fastest format; None if no time is known."""
        return next((row for row in self.rows if row.time is not None), None)

    def fastest(self, among: Iterable[str | Format]) -> Row | None:
        """The fastest of some formats that were compared; None if no time of them is known. Raises KeyError."""
        rows = [self[each] for each in among]
        return next((row for row in self.rows if row in rows and row.time is not None), None)

    @property
    def close(self) -> tuple[Row, ...]:
        """The formats whose intervals overlap that of the fastest: `measure=True` tells them apart."""
        best = self.best
        if best is None or best.time is None:
            return ()
        high = best.time.high
        return tuple(row for row in self.rows if row is not best and row.time is not None and row.time.low < high)

    def __str__(self) -> str:
        lines = [f"{self.m}×{self.n}×{self.k} on {self.device}"]
        for row in self.rows:
            time = row.time
            what = row.refusal if time is None else f"{time.us:.1f} µs ({time.low:.1f}–{time.high:.1f}, {time.origin})"
            lines.append(f"  {row.format!s:<14} {what}")
        return "\n".join([*lines, *self.notes])


def compare(
    m: int,
    n: int,
    k: int,
    formats: Iterable[str | Format] | None,
    device: str,
    measured: Measured,
) -> Advice:
    """The advice for a GPU. measured: times that were measured on it; they come before recorded and predicted ones."""
    wanted, there = formats_of(formats), known().get(device)
    rows = [row_of(each, m, n, k, there, measured) for each in wanted]
    rows.sort(key=lambda row: row.time.us if row.time is not None else float("inf"))
    return Advice(m, n, k, device, tuple(rows), (*notes_of(device, there, bool(measured)), *_remarks(rows)))


def row_of(format: Format, m: int, n: int, k: int, device: Known | None, measured: Measured) -> Row:
    """What is known of a format. Conversion starts from 16 bits."""
    taken = measured.get((format, m, n, k))
    refusal = format.refusal(m, n, k) or (taken if isinstance(taken, str) else "")
    time = None if refusal else time_of(format, m, n, k, device, measured)
    rates = None if device is None or refusal else device.fitted_for(format)[0].rates
    steps = ["quantize"] if format.element in EIGHT_BITS else []
    steps += [STEPS[format.kind]] if STEPS[format.kind] else []
    rate = None if device is None else device.conversion.get(format.kind)
    return Row(
        format,
        time,
        refusal or ("" if time is not None else "not measured"),
        format.nbytes(m, k),
        "" if rates is None else kernel_of(format, m, n, k).limit(rates),
        ", ".join(steps) or "none",
        None if rate is None else rate * Format(format.element).nbytes(m, k),
        losses().of(format),
    )


def notes_of(device: str, known_device: Known | None, measured: bool) -> tuple[str, ...]:
    """Where times come from."""
    if known_device is None:
        return () if measured else (f"no times of {device} are recorded: measure them here, with --measure",)
    records = known_device.records
    dates = sorted(date[:10] for date in records.values())
    return (f"table and model: {', '.join(records)}, {dates[0]} to {dates[-1]}",)


def _remarks(rows: Collection[Row]) -> tuple[str, ...]:
    found = dict.fromkeys(f"{row.format}: {row.time.note}" for row in rows if row.time is not None and row.time.note)
    return tuple(found)


def checked_size(name: str, value: object) -> int:
    """Raises TypeError or ValueError unless a value is a size of a product."""
    rule = f"{name} is an integer from 1 to {MAX_SIZE}"
    size = integer(value, rule)
    if not 1 <= size <= MAX_SIZE:
        raise ValueError(f"{rule}, got {size}")
    return size


def device_named(text: str) -> str:
    """The whole name of a GPU whose times are recorded. Raises ValueError for another one."""
    found = named(text)
    if found is None:
        raise ValueError(
            f"times of {', '.join(known())} are recorded, got {text!r}: run louver advise --measure on that GPU"
        )
    return found.device


def device_at_hand() -> str:
    """The name of the GPU at hand, else of `ELSEWHERE`."""
    found = current_device()
    return ELSEWHERE if isinstance(found, NoDevice) else found.name
