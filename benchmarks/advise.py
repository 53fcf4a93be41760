"""Judges `louver advise`: `python benchmarks/advise.py --out advise.json [--budget SECONDS]` on a GPU, then `--judge advise.json`.

150 products of three models of which no record has a weight, with 1 to 8,192 tokens that are no powers of two. Each is a choice
between two formats (`louver.measure.report.judged.CHOICES`), drawn before anything is timed: half of the pairs are predicted to be within `NEAR`. Both formats
are timed in turns, on random data; protocol: `louver.measure.advise.ADVICE`. The same call continues a record.

`--fit advise-fit.json` times other products, of models that rates are fitted to, in all formats of the choices, for
`fit_advice.py`. `--recorded` needs no GPU: it judges choices of the records, each predicted by a fit without its weight.

The choice by prediction is judged by all bursts, that by measurement on the first half of the bursts by the other half:
`louver.measure.report.judged` says how.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from louver.advice.formats import Format
from louver.advice.product import ELSEWHERE
from louver.advice.rates import Known, known, predicted
from louver.choose.tile_shapes import column_class
from louver.library.execute import schedule_for
from louver.measure.advise import ADVICE, bursts
from louver.measure.launches import compile_all
from louver.measure.machine import forbid_short_sums, header, require_torch
from louver.measure.problems import FITTED, WEIGHTS
from louver.measure.protocol import Protocol, median, spread
from louver.measure.record import write_record
from louver.measure.report.header import SCHEMA
from louver.measure.report.judged import CHOICES, judged_record, recorded
from louver.runtime.device import require_device

MODELS: Mapping[str, tuple[tuple[int, int], ...]] = {
    "Mistral Nemo 12B": ((6144, 5120), (5120, 4096), (28672, 5120), (5120, 14336)),
    "Gemma 3 12B": ((8192, 3840), (3840, 4096), (30720, 3840), (3840, 15360)),
    "Qwen3 4B": ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)),
}
"""Weights [M, K] of the judged models, as `louver.measure.problems.WEIGHTS`."""

TOKENS = 8192
COUNT, NEAR, FIT_COUNT = 150, 0.10, 72


@dataclass(frozen=True, slots=True)
class Case:
    """A product, and the formats that are timed."""

    model: str
    sizes: tuple[int, int, int]
    formats: tuple[Format, ...]

    @property
    def offered(self) -> list[Format]:
        """The formats of which there is such a product."""
        return [each for each in self.formats if not each.refusal(*self.sizes)]


def drawn_tokens(rng: random.Random) -> int:
    """A number of tokens that is no power of two, its logarithm even between 1 and `TOKENS`; 1 itself may come."""
    n = round(math.exp(rng.uniform(0, math.log(TOKENS))))
    return n if n == 1 or n & (n - 1) else drawn_tokens(rng)


def drawn(device: Known) -> list[Case]:
    """The judged products, in random order, so that the first of them are a fair sample."""
    rng, near, any_pair = random.Random(44), list[Case](), list[Case]()
    while len(near) < COUNT // 2 or len(any_pair) < COUNT - COUNT // 2:
        model = rng.choice(list(MODELS))
        m, k = rng.choice(MODELS[model])
        choice = rng.choice(CHOICES)
        case = Case(model, (m, drawn_tokens(rng), k), choice)
        while len(case.offered) < 2:
            case = replace(case, sizes=(m, drawn_tokens(rng), k))
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
    forbid_short_sums(torch)
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
    left = [each for each in cases if (each.sizes, *map(str, each.offered)) not in done]
    kernels = dict.fromkeys(
        (each.problem, schedule_for(each.problem, m, column_class(n), k, place, aligned_output=True))
        for case in left
        for m, n, k in (case.sizes,)
        for each in case.offered
        if each.pattern is not None
    )
    compile_all(kernels, place.target)
    print(f"{len(kernels)} kernels compiled", flush=True)
    end = time.perf_counter() + budget
    for case in left:
        if time.perf_counter() > end:
            break
        taken, refused = bursts(torch, case.formats, *case.sizes, protocol)
        if refused:
            raise RuntimeError(f"{case.sizes}: {refused}")
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
        run(drawn(known().get(found) or known()[ELSEWHERE]), given.out, given.budget)
    if given.judge:
        print("\n".join(judged_record(given.judge).lines()))
    if given.recorded:
        print(recorded())


if __name__ == "__main__":
    main()
