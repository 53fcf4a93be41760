"""How good advice was: choices between two formats whose times are known, and the regret of the predicted one.

The file of `benchmarks/advise.py` is JSON: `{"schema": 1, "kind": "advise", "device": …, "versions": {…}, "protocol": …,
"missing": 0, "rows": [{"model": …, "shape": [M, N, K], "times": {"f16 2:4": [µs, spread], …}, "bursts_us": {"f16 2:4": [µs, …],
…}}, …]}`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from louver.advice.formats import Format
from louver.advice.product import ELSEWHERE
from louver.advice.rates import Known, known, predicted
from louver.measure.report.header import read_record
from louver.measure.report.table import Table, folded, number, right

CHOICES: Final[tuple[tuple[Format, Format], ...]] = tuple(
    (Format.parse(a), Format.parse(b))
    for a, b in (("f16 2:4", "e4m3"), ("bf16 2:4", "s8"), ("e4m3 2:4", "s8 2:4"), ("bf16 2:4", "bf16 4:8@128"))
)
"""The choices that are judged."""

CLOSE: Final = 0.15
"""Pairs whose times differ by less count as close."""

TOLERABLE: Final = 0.03
"""A format within so much of the fastest one is as good."""

Two = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """A choice. measured, predicted: µs of both formats. halves: measured ones of both halves of the bursts; None unknown."""

    formats: tuple[Format, Format]
    measured: Two
    predicted: Two
    halves: tuple[Two, Two] | None = None

    @property
    def close(self) -> bool:
        return max(self.measured) < (1 + CLOSE) * min(self.measured)

    @property
    def errors(self) -> Two:
        """Predicted over measured time, less 1, without sign."""
        first, second = (abs(p / m - 1) for p, m in zip(self.predicted, self.measured, strict=True))
        return first, second

    def regret(self, index: int) -> float:
        """The time of a format over the faster one's, less 1."""
        return self.measured[index] / min(self.measured) - 1

    @property
    def predicted_regret(self) -> float:
        return self.regret(_faster(self.predicted))

    @property
    def measured_regret(self) -> float | None:
        """Of the choice by the first half of the bursts, in the second half."""
        if self.halves is None:
            return None
        first, second = self.halves
        return second[_faster(first)] / min(second) - 1


def _faster(times: Two) -> int:
    return int(times[1] < times[0])


RULES: Final[Mapping[str, Callable[[Format], bool]]] = {
    "always 2:4": lambda each: each.pattern == "2:4",
    "always 8 bits": lambda each: each.element in ("e4m3", "s8"),
}
"""Rules that need no advice. They decide a choice if one format follows them and the other does not."""


def judged(pairs: Sequence[Pair], title: str) -> Table:
    """The regret of advice, by choice too, and that of the rules. Raises ValueError without pairs."""
    if not pairs:
        raise ValueError("advice is judged by a pair of formats or more, got none")
    about = f"{title}: {len(pairs)} choices, {statistics.fmean(pair.close for pair in pairs):.0%} of them between times within {CLOSE:.0%}"
    rows = [("advise", [pair.predicted_regret for pair in pairs], _errors(pairs))]
    for choice in dict.fromkeys(pair.formats for pair in pairs):
        part = [pair for pair in pairs if pair.formats == choice]
        rows.append((f"  {choice[0]} or {choice[1]}", [pair.predicted_regret for pair in part], _errors(part)))
    rows.append(("advise --measure", [p.measured_regret for p in pairs if p.measured_regret is not None], []))
    for name, follows in RULES.items():
        sides = [(pair, [follows(each) for each in pair.formats]) for pair in pairs]
        regrets = [pair.regret(one.index(True)) for pair, one in sides if sum(one) == 1]
        rows.append((f"{name}, where it decides", regrets, []))
    headings = ("choices", f"best or within {TOLERABLE:.0%}", "regret, mean", "99th percentile", "worst")
    columns = (*headings, "time error, median", "90th percentile")
    return Table(about, (*folded("rule"), *right(*columns)), [_cells(*row) for row in rows])


def _errors(pairs: Sequence[Pair]) -> list[float]:
    return [error for pair in pairs for error in pair.errors]


def _cells(name: str, regrets: Sequence[float], errors: Sequence[float]) -> Sequence[str]:
    found: list[float | None] = [None] * 6
    if regrets:
        right, mean = statistics.fmean(each <= TOLERABLE for each in regrets), statistics.fmean(regrets)
        found[:4] = right, mean, _share(regrets, 0.99), max(regrets)
    if errors:
        found[4:] = statistics.median(errors), _share(errors, 0.9)
    return name, str(len(regrets)), *(number(each, ".1%") for each in found)


def _share(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def pairs_of(record: Mapping[str, Any]) -> list[Pair]:
    """The choices of a record, predicted by the rates of the package. Raises ValueError for a GPU without rates."""
    device = known().get(record["device"])
    if device is None:
        raise ValueError(f"times are predicted for {', '.join(known())}, got a record of {record['device']}")
    return [_pair(row, device) for row in record["rows"]]


def _pair(row: Mapping[str, Any], device: Known) -> Pair:
    if len(row["times"]) != 2:
        raise ValueError(f"a judged row has two formats, got {', '.join(row['times'])}")
    m, n, k = row["shape"]
    (a, (first, _)), (b, (second, _)) = row["times"].items()
    formats = Format.parse(a), Format.parse(b)
    guess = predicted(formats[0], m, n, k, device).us, predicted(formats[1], m, n, k, device).us
    one, other = row["bursts_us"][a], row["bursts_us"][b]
    half = len(one) // 2
    halves = (
        (statistics.median(one[:half]), statistics.median(other[:half])),
        (statistics.median(one[half:]), statistics.median(other[half:])),
    )
    return Pair(formats, (first, second), guess, halves)


def recorded_pairs(device: Known) -> list[Pair]:
    """The choices among recorded products of a GPU, predicted by fits that saw no row of the weight."""
    sizes = dict.fromkeys((m, n, k) for _, m, n, k in device.table)
    found: list[Pair] = []
    for m, n, k in sizes:
        for choice in CHOICES:
            first, second = (device.table.get((each, m, n, k)) for each in choice)
            if first is not None and second is not None:
                found.append(Pair(choice, (first.us, second.us), (first.unseen, second.unseen)))
    return found


def recorded() -> str:
    """The judgement of `recorded_pairs` of an H200, as text."""
    return "\n".join(judged(recorded_pairs(known()[ELSEWHERE]), f"records of {ELSEWHERE}").lines())


def judged_record(path: Path) -> Table:
    """The judgement of a record. Raises OSError, and ValueError for another file."""
    return read_record(path, "advise", lambda data: judged(pairs_of(data), str(data["device"])))
