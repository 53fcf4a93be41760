"""Fits the rates of `louver/choose/times.py`: `python benchmarks/fit_times.py FITTED.json … --held HELD.json`.

The records come from `schedule_times.py`: of benchmarks/results, today's rates are fitted to h200/schedule_times.json,
h200/schedule_times-wide.json and h200/schedule_times-gpcs.json, and held against h200/schedule_times-widths-held.json
and h200/schedule_times-order-held.json. The fit uses every other weight of the fitted records; all other weights only
report. Schedules that are no longer candidates are left out. The error is the logarithm of predicted over measured
time. Slow candidates count less, because the choice is among the fast ones. Levenberg's method fits the logarithms of
the rates. Prints the rates and, for each part, their agreement and regret: the measured time of the schedule with the
least predicted time, over the fastest schedule's.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.choose.tile_shapes import LEAST_DIVIDED, TILES
from louver.choose.times import CLOCK, H200, Rates
from louver.compile.plan.schedule import FIELDS, Schedule
from louver.frontend.problem import Problem

SM_COUNT = 132
ROUNDS = 30
TOLERABLE = 0.05
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate and its time in microseconds."""

    sizes: tuple[int, int, int]
    dtype: str
    demand: Demand
    schedule: Schedule
    cut: tuple[int, int, int]
    us: float

    def predicted(self, rates: Rates) -> float:
        """Microseconds."""
        cutting, (m, n, k) = Cutting.of(self.demand, self.schedule, rates), self.sizes
        return cutting.cycles(self.ranges, m, n, k, 1, SM_COUNT) / CLOCK

    @property
    def ranges(self) -> Ranges:
        m, n, k = self.sizes
        return Ranges(Cutting.of(self.demand, self.schedule).whole(m, n, k, 1).tiles, *self.cut)

    @property
    def candidate(self) -> bool:
        """Whether the library can choose this schedule and cut. The depth of the ring is not compared."""
        tile, consumers, (m, n, k) = self.schedule.tile, self.schedule.roles.consumers, self.sizes
        cutting = Cutting.of(self.demand, self.schedule)
        cuts = cutting.cuts(cutting.whole(m, n, k, 1), n, SM_COUNT)
        return (not self.schedule.cuts or self.ranges in cuts) and any(
            (not self.schedule.cuts or shape.cuts(self.demand))
            and (shape.m, shape.n, shape.consumers, self.demand.step * shape.steps)
            == (tile.m, tile.n, consumers, tile.k)
            and shape.fits(self.demand)
            and (not shape.lone or n <= LEAST_DIVIDED)
            and shape.takes(self.demand, self.schedule.ring.metadata)
            for shape in TILES
        )


def read(path: Path) -> list[list[Timed]]:
    record = json.loads(path.read_text())
    rows = [
        [_timed(row, dict(zip(record["columns"], each, strict=True))) for each in row["times"]]
        for row in record["rows"]
    ]
    return [[each for each in row if each.candidate] for row in rows]


def _timed(row: dict[str, Any], facts: dict[str, Any]) -> Timed:
    dtype = row["dtype"]
    demand = Demand.of_problem(Problem("linear", a=dtype, b=dtype, out="f16"))
    cut = (facts["whole"], facts["parts"], facts["part_steps"])
    schedule = Schedule.of(**{name: value for name, value in facts.items() if name in FIELDS})
    return Timed(tuple(row["shape"]), dtype, demand, schedule, cut, facts["us"])


def rates_of(logs: Vector) -> Rates:
    values = iter(np.exp(logs).tolist())
    flat = {name: next(values) for name in _NAMES}
    return replace(H200, **flat)


_NAMES = (
    "begin",
    "memory",
    "product",
    "column",
    "power",
    "base",
    "step",
    "load",
    "l2",
    "output",
    "trip",
    "sums",
    "meet",
    "exchange",
    "norm",
)


def logs_of(rates: Rates) -> Vector:
    facts = asdict(rates)
    return np.log([facts[name] for name in _NAMES])


def fit(rows: Sequence[Sequence[Timed]]) -> Rates:
    flat = [each for row in rows for each in row]
    best = [min(each.us for each in row) for row in rows for _ in row]
    weights = np.array(
        [1.0 if t.us < 1.15 * b else 0.5 if t.us < 1.5 * b else 0.2 for t, b in zip(flat, best, strict=True)]
    )
    measured = np.log([each.us for each in flat])

    def errors(logs: Vector) -> Vector:
        rates = rates_of(logs)
        found = (np.log([each.predicted(rates) for each in flat]) - measured) * weights
        return tempered(found)

    return rates_of(least_squares(errors, logs_of(H200)))


def tempered(errors: Vector) -> Vector:
    """Errors whose squares grow linearly beyond 3%, so that outliers do not decide."""
    return np.sign(errors) * np.sqrt(2 * 0.03**2 * (np.sqrt(1 + (errors / 0.03) ** 2) - 1))


def least_squares(errors: Callable[[Vector], Vector], start: Vector) -> Vector:
    """Where the sum of the squares of `errors` is least, by Levenberg's method from `start`."""
    at, now, damping = start, errors(start), 1e-3
    for _ in range(ROUNDS):
        slopes = np.stack([(errors(at + step) - now) / 1e-4 for step in 1e-4 * np.eye(len(at))], axis=1)
        square = slopes.T @ slopes
        move = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -slopes.T @ now)
        moved = errors(at + move)
        if moved @ moved < now @ now:
            if (now @ now - moved @ moved) < 1e-5 * (now @ now):
                return at + move
            at, now, damping = at + move, moved, damping / 3
        else:
            damping *= 5
    return at


def report(name: str, rows: Sequence[Sequence[Timed]], rates: Rates) -> None:
    errors, chosen, regrets = list[float](), list[float](), dict[tuple[str, int], list[float]]()
    for row in rows:
        times = {each: each.predicted(rates) for each in row}
        errors += [abs(predicted / each.us - 1) for each, predicted in times.items()]
        pick = min(times, key=lambda each: times[each])
        chosen.append(abs(times[pick] / pick.us - 1))
        regrets.setdefault((pick.dtype, pick.sizes[1]), []).append(pick.us / min(each.us for each in row) - 1)
    print(
        f"{name}: {len(rows)} rows; error of all, median {statistics.median(errors):.1%}; of the chosen {statistics.median(chosen):.1%}"
    )
    for (dtype, n), taken in [
        *sorted(regrets.items()),
        (("all", 0), [each for part in regrets.values() for each in part]),
    ]:
        middle, mean, worst = statistics.median(taken), statistics.mean(taken), max(taken)
        above = sum(each > TOLERABLE for each in taken)
        print(
            f"  {dtype:5} N {n or 'any':5}: regret median {middle:.1%}, mean {mean:.1%}, worst {worst:.1%}, above {TOLERABLE:.0%} {above}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--held", type=Path, nargs="*", default=[], help="records that report only")
    parser.add_argument("--keep", action="store_true", help="report on the library's rates, fit none")
    given = parser.parse_args()
    halves: tuple[list[list[Timed]], ...] = [], []
    for rows in map(read, given.records):
        weights = sorted({(row[0].sizes[0], row[0].sizes[2]) for row in rows})
        for part, half in enumerate(halves):
            half += [row for row in rows if (row[0].sizes[0], row[0].sizes[2]) in weights[part::2]]
    rates = H200 if given.keep else fit(halves[0])
    print(rates)
    report("fitted", halves[0], rates)
    report("not fitted", halves[1], rates)
    for path in given.held:
        report(path.stem, read(path), rates)


if __name__ == "__main__":
    main()
