"""Figure 7 of NM-SpMM (docs/nm.md): the paper's versions as schedules, relative to cuBLAS, for the cases of Table II."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from louver.compile.plan.schedule import Schedule
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.isa.targets import Target, target
from louver.library.configure import deepest
from louver.measure.launches import compile_all
from louver.measure.nm import SPARSITIES, problem_of
from louver.measure.protocol import Protocol
from louver.measure.report.nm import CUBLAS
from louver.measure.vectors import Multiplied, drawn, launched, microseconds
from louver.runtime.device import Device, require_device

CASES: Mapping[str, tuple[int, int, int]] = {
    "A": (512, 512, 512),
    "B": (1024, 512, 1024),
    "C": (2048, 512, 2048),
    "D": (2048, 1024, 2048),
    "E": (4096, 2048, 4096),
    "F": (4096, 4096, 4096),
}
"""Table II, as M×N×K: rows of the weight (the paper's n), tokens (its m), inner size. Figure 7 shows F."""

QUICK_CASES = ("C", "F")


@dataclass(frozen=True, slots=True)
class Version:
    """The schedules of a version.

    deep: as many stages as the library takes, so that copies overlap with products; else one stage.

    metadata: "stage": boxes copy all rows and threads pick rows; "global": kept rows are gathered.
    """

    metadata: Literal["stage", "global"]
    deep: bool

    def schedule(self, problem: Problem, tile: tuple[int, int, int, int], machine: Target) -> Schedule:
        """The schedule for a tile. Raises ValueError if two stages do not fit."""
        m, n, k, consumers = tile
        schedule = Schedule.of(
            tile_m=m, tile_n=n, tile_k=k, consumers=consumers, stages=1, in_flight=0, metadata=self.metadata
        )
        return deepest(problem, schedule, machine) if self.deep else schedule


VERSIONS: Mapping[str, Version] = {
    "V1": Version("stage", deep=False),
    "V2": Version("global", deep=False),
    "V3": Version("global", deep=True),
    "V3 unpacked": Version("stage", deep=True),
}
"""V1: blocking. V2: packing. V3: packing and pipelining. Up to 70% sparsity, the paper's V3 is "V3 unpacked"."""

TILES = ((256, 128, 32, 2), (256, 128, 16, 2), (128, 128, 32, 2), (128, 64, 32, 2), (64, 128, 32, 1))
"""Rows of the weight, tokens, stored columns of a step, consumer warpgroups. The best tile of each version counts."""


def ladder_patterns(length: int) -> tuple[Pattern, ...]:
    """32:32 and the paper's sparsities, in vectors of this length."""
    return tuple(Pattern.parse(f"{each}@{length}") for each in ("32:32", *SPARSITIES))


def candidates(pattern: Pattern, machine: Target) -> tuple[dict[str, Schedule], dict[str, str]]:
    """Schedules by version and tile, and the errors of schedules that cannot be built."""
    found, refused = dict[str, Schedule](), dict[str, str]()
    for (name, version), tile in ((each, tile) for each in VERSIONS.items() for tile in TILES):
        label = f"{name}, {'×'.join(map(str, tile[:3]))}"
        try:
            found[label] = version.schedule(problem_of("matmul", pattern), tile, machine)
        except ValueError as error:
            refused[label] = str(error)
    return found, refused


def measure_ladder(
    torch: Any, cases: Sequence[str], chosen: Sequence[Pattern], protocol: Protocol
) -> Iterator[dict[str, Any]]:
    """Rows of the record for each case and pattern: `louver.measure.report.nm`. Raises ArithmeticError for a wrong
    result.
    """
    place = require_device()
    built = {pattern: candidates(pattern, target(place.target)) for pattern in chosen}
    pairs = [(problem_of("matmul", pattern), s) for pattern, (found, _) in built.items() for s in found.values()]
    reasons = compile_all(pairs, place.target)
    for case in cases:
        for pattern, (found, refused) in built.items():
            problem = problem_of("matmul", pattern)
            left_out = refused | {n: reasons[problem, s] for n, s in found.items() if (problem, s) in reasons}
            runs = {name: schedule for name, schedule in found.items() if name not in left_out}
            us = _measure_case(torch, CASES[case], pattern, runs, place, protocol)
            best = {
                version: min((us[name], name) for name in names)
                for version in VERSIONS
                if (names := [name for name in runs if name.startswith(f"{version},")])
            }
            yield {
                "case": case,
                "shape": list(CASES[case]),
                "pattern": str(pattern),
                "us": {CUBLAS: us[CUBLAS]} | {version: time for version, (time, _) in best.items()},
                "tiles": {version: name.removeprefix(f"{version}, ") for version, (_, name) in best.items()},
                "schedules": {version: runs[name].flat() for version, (_, name) in best.items()},
                "all_us": us,
                "refused": left_out,
            }


def _measure_case(
    torch: Any,
    shape: tuple[int, int, int],
    pattern: Pattern,
    runs: Mapping[str, Schedule],
    place: Device,
    protocol: Protocol,
) -> dict[str, float]:
    m, n, k = shape
    problem, generator = problem_of("matmul", pattern), torch.Generator(device="cuda").manual_seed(0)
    given = drawn(torch, generator, m, k, pattern, "f32")
    dense, b, y = given.dense, torch.randn(k, n, generator=generator, device="cuda"), torch.empty(m, n, device="cuda")
    contenders = {CUBLAS: Multiplied(dense, lambda _: torch.mm(dense, b, out=y), y)}
    for name, schedule in runs.items():
        contenders[name] = launched(torch, given.operand(schedule, place), problem, schedule, place, dense, b, y)
    return microseconds(torch, contenders, b, "f32", str(pattern), protocol)
