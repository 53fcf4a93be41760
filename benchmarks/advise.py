"""Judges `louver advise`: `python benchmarks/advise.py --out advise.json [--budget SECONDS]` on a GPU, then `--judge advise.json`.

150 products of three models of which no record has a weight, with 1 to 8,192 tokens that are no powers of two. Each is a choice
between two formats (`CHOICES`), drawn before anything is timed: half of the pairs are predicted to be within `NEAR`. Both formats
are timed in turns, on random data; protocol: `louver.measure.formats.ADVICE`. The same call continues a record.

`--fit advise-fit.json` times other products, of models that rates are fitted to, in all formats of the choices, for
`fit_advice.py`. `--recorded` needs no GPU: it judges pairs of the records, each predicted by a fit without its weight.

The choice by prediction is judged by all bursts, that by measurement on the first half of the bursts by the other half. Regret is
the time of the chosen format over the faster one's, less 1.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fit_advice import Row, fitted, recorded

from louver.advice.formats import Format
from louver.advice.product import ELSEWHERE
from louver.advice.rates import Known, known
from louver.advice.times import predicted
from louver.library.execute import schedule_for
from louver.library.tile_shapes import column_class
from louver.measure.formats import ADVICE, bursts
from louver.measure.launches import compile_all
from louver.measure.machine import header, require_torch
from louver.measure.protocol import Protocol, median, spread
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.suites import FITTED, WEIGHTS
from louver.runtime.device import require_device

MODELS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "Mistral Nemo 12B": ((6144, 5120), (5120, 4096), (28672, 5120), (5120, 14336)),
    "Gemma 3 12B": ((8192, 3840), (3840, 4096), (30720, 3840), (3840, 15360)),
    "Qwen3 4B": ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)),
}
"""Weights [M, K] of the judged models, as `louver.measure.suites.WEIGHTS`."""

CHOICES: tuple[tuple[Format, Format], ...] = tuple(
    (Format.parse(a), Format.parse(b))
    for a, b in (("f16 2:4", "e4m3"), ("bf16 2:4", "s8"), ("e4m3 2:4", "s8 2:4"), ("bf16 2:4", "bf16 4:8@128"))
)
TOKENS = 8192
COUNT, NEAR, FIT_COUNT = 150, 0.10, 32
CLOSE = 0.15
"""Pairs whose times differ by less count as close."""
TOLERABLE = 0.03


@dataclass(frozen=True, slots=True)
class Case:
    """A product, and the formats that are timed."""

    model: str
    sizes: tuple[int, int, int]
    formats: tuple[Format, ...]


def drawn_tokens(rng: random.Random) -> int:
    """A number of tokens that is no power of two, its logarithm even between 1 and `TOKENS`; 1 itself may come."""
    n = round(math.exp(rng.uniform(0, math.log(TOKENS))))
    return n if n == 1 or n & (n - 1) else drawn_tokens(rng)


def judged(device: Known) -> list[Case]:
    """The judged products, in random order, so that the first of them are a fair sample."""
    rng, near, any_pair = random.Random(44), list[Case](), list[Case]()
    while len(near) < COUNT // 2 or len(any_pair) < COUNT - COUNT // 2:
        model = rng.choice(list(MODELS))
        m, k = rng.choice(MODELS[model])
        choice = rng.choice(CHOICES)
        case = Case(model, (m, drawn_tokens(rng), k), choice)
        if any(each.refusal(*case.sizes) for each in choice):
            continue
        first, second = (predicted(each, *case.sizes, device).us for each in choice)
        is_near = max(first, second) / min(first, second) < 1 + NEAR
        part, room = (near, COUNT // 2) if is_near else (any_pair, COUNT - COUNT // 2)
        if len(part) < room:
            part.append(case)
    cases = [*near, *any_pair]
    rng.shuffle(cases)
    return cases


def for_fit() -> list[Case]:
    """Products of fitted models, in all formats of the choices and dense ones of 16 bits."""
    rng = random.Random(4)
    formats = tuple(dict.fromkeys([each for choice in CHOICES for each in choice] + [Format("f16"), Format("bf16")]))
    weights = [(name, weight) for name in FITTED for weight in WEIGHTS[name]]
    return [
        Case(name, (m, drawn_tokens(rng), k), formats)
        for name, (m, k) in (rng.choice(weights) for _ in range(FIT_COUNT))
    ]


def run(cases: Sequence[Case], out: Path, budget: float, protocol: Protocol = ADVICE) -> None:
    """Time cases that the record lacks, until the budget is spent. Compiling their kernels before takes time of its own."""
    torch, place = require_torch(), require_device()
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "advise",
        **header(torch),
        "protocol": protocol.describe_bursts(),
    }
    rows: list[dict[str, Any]] = []
    if out.exists():
        begun = json.loads(out.read_text())
        if begun["device"] != facts["device"]:
            raise ValueError(f"{out.name} was begun on {begun['device']}, got {facts['device']}: continue it there")
        rows = begun["rows"]
    done = {(tuple(row["shape"]), *row["times"]) for row in rows}
    left = [each for each in cases if (each.sizes, *map(str, each.formats)) not in done]
    kernels = dict.fromkeys(
        (each.problem, schedule_for(each.problem, m, column_class(n), k, place, aligned_output=True))
        for case in left
        for m, n, k in (case.sizes,)
        for each in case.formats
        if each.pattern is not None
    )
    compile_all(kernels, place.target)
    print(f"{len(kernels)} kernels compiled", flush=True)
    end = time.perf_counter() + budget
    for case in left:
        if time.perf_counter() > end:
            break
        taken = bursts(torch, case.formats, *case.sizes, protocol)
        rows.append(
            {
                "model": case.model,
                "shape": list(case.sizes),
                "times": {str(f): [round(median(t) * 1e6, 3), round(spread(t), 4)] for f, t in taken.items()},
                "bursts_us": {str(f): [round(each * 1e6, 3) for each in t] for f, t in taken.items()},
            }
        )
    missing = len(cases) - len(rows)
    write_record(out, {**facts, "missing": missing, "rows": rows})
    print(f"{len(rows)} products in {out}, {missing} missing")


@dataclass(frozen=True, slots=True)
class Pair:
    """A choice: measured µs of both formats, predicted ones, and measured ones of the two halves of the bursts."""

    formats: tuple[Format, Format]
    measured: tuple[float, float]
    predicted: tuple[float, float]
    halves: tuple[tuple[float, float], tuple[float, float]] | None = None

    @property
    def ratio(self) -> float:
        return max(self.measured) / min(self.measured)

    def regret(self, index: int) -> float:
        return self.measured[index] / min(self.measured) - 1

    @property
    def chosen(self) -> int:
        return int(self.predicted[1] < self.predicted[0])

    @property
    def measured_regret(self) -> float | None:
        if self.halves is None:
            return None
        first, second = self.halves
        return second[int(first[1] < first[0])] / min(second) - 1


def pairs_of(record: Mapping[str, Any]) -> list[Pair]:
    """The pairs of a record, predicted by the rates of the package."""
    device, found = known()[record["device"]], list[Pair]()
    for row in record["rows"]:
        formats = [Format.parse(name) for name in row["times"]]
        taken = [row["bursts_us"][name] for name in row["times"]]
        half = len(taken[0]) // 2
        halves = tuple(tuple(statistics.median(part) for part in parts) for parts in zip(*((t[:half], t[half:]) for t in taken), strict=True))  # fmt: skip
        us = tuple(predicted(each, *row["shape"], device).us for each in formats)
        measured = tuple(time for time, _ in row["times"].values())
        found.append(Pair(tuple(formats), measured, us, halves))
    return found


def recorded_pairs() -> list[Pair]:
    """The choices among recorded rows of an H200, predicted by fits without the row's weight."""
    _, rows = recorded("h200")
    _, residuals = fitted("h200", rows, {})
    found: dict[tuple[tuple[int, int, int], Format], tuple[Row, float]] = {}
    found |= {(row.sizes, row.format): (row, row.us / ratio) for row, ratio in residuals}
    pairs: list[Pair] = []
    for sizes in dict.fromkeys(sizes for sizes, _ in found):
        for choice in CHOICES:
            both = [found[sizes, each] for each in choice if (sizes, each) in found]
            if len(both) == 2:
                (a, at), (b, bt) = both
                pairs.append(Pair(choice, (a.us, b.us), (at, bt)))
    return pairs


def judge(pairs: Sequence[Pair]) -> None:
    """Print what is asked of the advice, beside two rules that need none."""
    errors = [abs(p / m - 1) for pair in pairs for p, m in zip(pair.predicted, pair.measured, strict=True)]
    close = statistics.fmean(pair.ratio < 1 + CLOSE for pair in pairs)
    print(f"{len(pairs)} pairs, {close:.0%} of them within {CLOSE:.0%}")
    print(f"time error: median {statistics.median(errors):.1%}, 90th percentile {_share(errors, 0.9):.1%}")
    _line("advise", [pair.regret(pair.chosen) for pair in pairs])
    measured = [pair.measured_regret for pair in pairs if pair.measured_regret is not None]
    if measured:
        _line("advise --measure", measured)
    for name, is_taken in _RULES.items():
        sides = [(pair, [is_taken(each) for each in pair.formats]) for pair in pairs]
        decided = [pair.regret(taken.index(True)) for pair, taken in sides if sum(taken) == 1]
        if decided:
            _line(f"{name}, where it decides", decided)
    for choice in CHOICES:
        part = [pair.regret(pair.chosen) for pair in pairs if pair.formats == choice]
        if part:
            _line(f"  {choice[0]} or {choice[1]}", part)


_RULES: Mapping[str, Callable[[Format], bool]] = {
    "always 2:4": lambda each: each.pattern == "2:4",
    "always 8 bits": lambda each: each.element in ("e4m3", "s8"),
}


def _line(name: str, regrets: Sequence[float]) -> None:
    right = statistics.fmean(each <= TOLERABLE for each in regrets)
    print(
        f"{name}: {len(regrets)} pairs, best or within {TOLERABLE:.0%} of it {right:.1%}, regret mean {statistics.fmean(regrets):.2%}, "
        f"99th percentile {_share(regrets, 0.99):.1%}, worst {max(regrets):.1%}"
    )


def _share(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="time the judged products")
    parser.add_argument("--fit", type=Path, help="time products for the fit")
    parser.add_argument("--budget", type=float, default=60, help="seconds of the timing")
    parser.add_argument("--judge", type=Path, help="a record to judge by the package's rates")
    parser.add_argument("--recorded", action="store_true", help="judge pairs of the records")
    given = parser.parse_args()
    if given.fit:
        run(for_fit(), given.fit, given.budget, replace(ADVICE, rounds=2))
    if given.out:
        found = require_device().name
        run(judged(known().get(found) or known()[ELSEWHERE]), given.out, given.budget)
    if given.judge:
        judge(pairs_of(json.loads(given.judge.read_text())))
    if given.recorded:
        judge(recorded_pairs())


if __name__ == "__main__":
    main()
