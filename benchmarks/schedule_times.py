"""Times of candidate schedules over published shapes: `python benchmarks/schedule_times.py --dtype f16,e4m3 --out
FILE.json`.

The model that chooses schedules is fitted to this record. Each candidate of the model, or each that it predicts to be
fast (`--within`), multiplies each weight of the models, or of `--weights`, by each number of tokens. Its first result is
compared with float64 by the library's bound.
Graph replays are interleaved, and the median of the rounds counts. A graph rotates over at least 150 MB and at most 64
copies of one compressed weight, so that they leave the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from louver.choose.configure import candidates_for, settled
from louver.choose.demand import Demand
from louver.choose.ranges import Cutting, Ranges
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.library.compiled import loaded
from louver.library.forms import forms_of
from louver.library.launch import Launcher
from louver.library.state import TensorState
from louver.measure.launches import compile_all, launches, rows_of
from louver.measure.machine import header, require_torch
from louver.measure.operands import make_operands, verify
from louver.measure.problems import FITTED, OUTPUTS, WEIGHTS, GemmProblem, parse_dtypes
from louver.measure.protocol import Protocol, median
from louver.measure.sustained import Load, prepare, take_turns
from louver.runtime.device import Device, require_device

TOKENS = (1, 16, 64, 256, 1024, 4096)

PROTOCOL = Protocol(
    rounds=3,
    burst_seconds=0.012,
    pause_seconds=0.01,
    launches=8,
    graph_seconds=0.002,
    rotation_bytes=150_000_000,
    most_sets=64,
)

COLUMNS = (
    "tile_m",
    "tile_n",
    "tile_k",
    "consumers",
    "stages",
    "metadata",
    "work",
    "whole",
    "parts",
    "part_steps",
    "us",
)
"""Values of a time: fields of the schedule and of its cut of K (`louver.choose.ranges.Ranges`), and microseconds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    schedule: Schedule
    cut: Ranges

    def row(self, seconds: float) -> list[Any]:
        facts = {**self.schedule.flat(), **self.cut.sizes, "us": round(seconds * 1e6, 3)}
        return [facts[name] for name in COLUMNS]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The candidates to time: those whose predicted time is at most `within` times the least one.

    depths: whether the four fastest of them by prediction are timed with shallower rings too, and no others.
    """

    within: float
    depths: bool

    def candidates(self, problem: Problem, m: int, n: int, k: int, place: Device) -> Iterator[Candidate]:
        demand, sizes = Demand.of_problem(problem), (m, n, k, 1)
        found: dict[Candidate, float] = {}

        def add(schedule: Schedule, cutting: Cutting, cut: Ranges) -> None:
            candidate = Candidate(settled(demand, schedule, cut, n, target(place.target)), cut)
            found[candidate] = cutting.cycles(cut, *sizes, place.sm_count)

        for schedule, cutting in candidates_for(demand, target(place.target), n, bulk=True):
            if not schedule.cuts:
                add(schedule, cutting, cutting.whole(*sizes))
            cut = cutting.best(*sizes, place.sm_count)
            if cut.cut:
                add(schedule if schedule.cuts else schedule.changed(work="ranges"), cutting, cut)
        fast = sorted(found, key=lambda each: found[each])
        fast = [each for each in fast if found[each] <= self.within * found[fast[0]]]
        yield from self._shallower(fast[:4]) if self.depths else fast

    def _shallower(self, found: list[Candidate]) -> Iterator[Candidate]:
        for each in found:
            most = each.schedule.ring.stages
            for stages in range(min(most, max(3, most // 2)), most + 1):
                yield replace(each, schedule=each.schedule.changed(stages=stages))


def time_weight(
    torch: Any, m: int, k: int, dtype: str, place: Device, tokens: tuple[int, ...], wanted: Wanted
) -> Iterator[dict[str, Any]]:
    """A row for each N."""
    problem = Problem("linear", a=dtype, b=dtype, out=OUTPUTS[dtype][0])
    sets = PROTOCOL.sets(GemmProblem(m, 1, k, dtype).compressed_bytes)
    drawn = make_operands(torch, GemmProblem(m, max(tokens), k, dtype, problem.out), 1)
    weights = [drawn.sparse[0], *(copy(drawn.sparse[0]) for _ in range(sets - 1))]
    for n in tokens:
        x, y = drawn.x[:n], drawn.y[:n]
        checked = replace(drawn, problem=replace(drawn.problem, n=n), x=x, y=y)
        loads: dict[Candidate, Load] = {}
        for candidate in wanted.candidates(problem, m, n, k, place):
            schedule = candidate.schedule
            held = [each.derived.of(TensorState).operand(each, 0, forms_of(schedule, each)) for each in weights]
            cutting = Cutting.of(Demand.of_problem(problem), schedule) if schedule.cuts else None
            kernel = loaded(problem, schedule, 0)
            launchers = [Launcher(kernel, each, (m, k), cutting) for each in held]
            call = launches(torch, launchers, n, rows_of(x), rows_of(y))
            y.fill_(float("nan"))
            call(0)
            if not verify(torch, checked, 0, y).ok:
                raise ArithmeticError(f"{schedule} computes wrongly at {m}x{n}x{k} {dtype}")
            loads[candidate] = prepare(torch, call, sets, PROTOCOL)
        times = take_turns(loads, PROTOCOL)
        yield {"shape": [m, n, k], "dtype": dtype, "times": [each.row(median(taken)) for each, taken in times.items()]}


def write(path: Path, facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write each row on a line. Its times have the values of `COLUMNS`."""
    head = {"kind": "schedule times", **facts, "protocol": __doc__, "columns": COLUMNS}
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{lines}\n]}}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="f16,e4m3")
    parser.add_argument("--budget", type=float, default=3600, help="seconds after which no weight is begun")
    parser.add_argument("--models", default=",".join(FITTED))
    parser.add_argument("--weights", default="", help="MxK, … in place of the models' weights")
    parser.add_argument("--tokens", default=",".join(map(str, TOKENS)), help="N, each 1 or a multiple of 8")
    parser.add_argument("--within", type=float, default=math.inf, help="greatest predicted time, of the least one")
    parser.add_argument("--depths", action="store_true", help="the four fastest candidates with shallower rings too")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch, place, begin = require_torch(), require_device(), time.monotonic()
    weights = [tuple(map(int, part.split("x"))) for part in given.weights.split(",") if part]
    weights = weights or [weight for model in given.models.split(",") for weight in WEIGHTS[model]]
    operands = [(dtype, weight) for weight in weights for dtype in parse_dtypes(given.dtype)]
    wanted = Wanted(given.within, given.depths)
    tokens = tuple(int(part) for part in given.tokens.split(","))
    kernels = dict.fromkeys(
        (problem, each.schedule)
        for dtype, (m, k) in operands
        for n in tokens
        for problem in [Problem("linear", a=dtype, b=dtype, out=OUTPUTS[dtype][0])]
        for each in wanted.candidates(problem, m, n, k, place)
    )
    refused = compile_all(kernels, place.target)
    if refused:
        raise RuntimeError("; ".join(refused.values()))
    print(f"{len(kernels)} kernels compiled after {time.monotonic() - begin:.0f} s", flush=True)
    rows: list[dict[str, Any]] = []
    for dtype, (m, k) in operands:
        if time.monotonic() - begin > given.budget:
            break
        rows += time_weight(torch, m, k, dtype, place, tokens, wanted)
        print(f"{m}x{k} {dtype} after {time.monotonic() - begin:.0f} s", flush=True)
        write(given.out, header(torch), rows)


if __name__ == "__main__":
    main()
