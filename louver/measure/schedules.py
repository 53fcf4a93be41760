"""Times the schedules of one problem side by side: the library's choice, and schedules that differ by one field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from louver.choose.configure import TYPICAL_K, choose, deepest
from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol
from louver.measure.tune_run import Task, set_up
from louver.runtime.device import Device, require_device

ALTERNATIVES: tuple[Mapping[str, Any], ...] = (
    {"raster": 4},
    {"raster": 8},
    {"raster": 16},
    {"raster": 24},
    {"raster": 32},
    {"l2": "even"},
    {"work": "tiles"},
    {"work": "ranges"},
    {"work": "pairs"},
    {"tile_n": 256, "work": "ranges"},
    {"cluster": 2},
    {"tile_n": 64, "staging": None},
    {"tile_n": 128, "staging": None},
    {"tile_n": 192, "staging": None},
    {"tile_n": 256},
    {"tile_m": 256, "tile_n": 128},
    {"tile_m": 256, "tile_n": 192, "staging": 96},
    {"tile_m": 256, "tile_n": 176, "staging": 96},
    {"tile_m": 128, "tile_n": 256, "staging": 128},
    {"tile_m": 192, "tile_n": 192, "consumers": 3, "staging": None},
    {"tile_m": 256, "tile_n": 256, "consumers": 4, "staging": 32},
    {"tile_m": 256, "tile_n": 256, "consumers": 2, "staging": 32},
    {"tile_k": 64},
    {"tile_k": 128},
    {"store": "direct"},
    {"staging": None},
    {"staging": 16},
    {"staging": 32},
    {"staging": 128},
    {"stages": 8},
    {"stages": 3},
    {"stages": 2},
)
"""Single changes to the library's choice. A tile's shape counts as one change. Schedules that do not fit are left out.
"""


@dataclass(frozen=True, slots=True)
class Rung:
    """One measured schedule. change: from the library's choice, "" for the choice itself. seconds: of a launch."""

    change: str
    schedule: Schedule
    seconds: float

    def tflops(self, problem: GemmProblem) -> float:
        """Dense-equivalent TFLOP/s."""
        return 2.0 * math.prod(problem.shape) / self.seconds / 1e12


def candidates(
    problem: Problem, m: int, n: int, place: Device, *, only: str = "", k: int = TYPICAL_K
) -> dict[str, Schedule]:
    """The library's choice as "", and alternatives that differ from it, fit the target and have `only` in their names."""
    machine = target(place.target)
    base = choose(problem, m, n, machine, place.sm_count, aligned_output=True, k=k, cuts=True)
    found = {"": base}
    for change in ALTERNATIVES:
        try:
            changed = base.changed(**change)
            if "stages" not in change:
                changed = deepest(problem, changed, machine)
        except ValueError:
            continue
        name = ", ".join(f"{name} {value}" for name, value in change.items())
        if changed not in found.values() and only in name:
            found[name] = changed
    return found


def measure_schedules(torch: Any, gemm: GemmProblem, protocol: Protocol, *, only: str = "") -> list[Rung]:
    """Time the candidates on one problem, fastest first. Raises ArithmeticError if a result is wrong."""
    place = require_device()
    schedules = candidates(gemm.product, gemm.m, gemm.n, place, only=only, k=gemm.k)
    times = time_schedules(torch, gemm, schedules, protocol)
    rungs = [Rung(change, schedules[change], seconds) for change, seconds in times.items()]
    return sorted(rungs, key=lambda rung: rung.seconds)


def time_schedules(
    torch: Any, gemm: GemmProblem, schedules: Mapping[str, Schedule], protocol: Protocol
) -> dict[str, float]:
    """Seconds of a launch by the schedules' names. Each schedule is verified first, then timed in bursts, in turns.

    Raises ArithmeticError if a result is wrong, RuntimeError if a schedule does not compile.
    """
    bench = set_up(torch, Task(gemm.product, *gemm.shape), require_device(), protocol)
    times = bench.measure(list(dict.fromkeys(schedules.values())))
    if bench.refused:
        raise RuntimeError("; ".join(bench.refused.values()))
    return {change: times[schedule] for change, schedule in schedules.items()}
