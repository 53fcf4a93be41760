"""Schedules beside each other on one problem: the library's own choice, and what differs from it by one field."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from louver.compile.plan.schedule import Schedule
from louver.frontend.problem import Problem
from louver.isa.targets import target
from louver.library.compiled import record_of
from louver.library.configure import TYPICAL_K, choose, deepest
from louver.library.rows import Rows
from louver.library.state import TensorState
from louver.measure.contenders import Contender
from louver.measure.graph import prepare
from louver.measure.operands import Operands, make_operands
from louver.measure.problems import GemmProblem
from louver.measure.protocol import Protocol, interleave, median
from louver.measure.verify import verify
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
    {"tile_n": 256, "work": "ranges"},
    {"cluster": 2},
    {"tile_n": 64, "staging": None},
    {"tile_n": 128, "staging": None},
    {"tile_n": 192, "staging": None},
    {"tile_n": 256},
    {"tile_m": 256, "tile_n": 128},
    {"tile_m": 256, "tile_n": 192, "staging": 96, "raster": 12},
    {"tile_m": 128, "tile_n": 256, "staging": 128, "raster": 16},
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
    {"stages": 3},
    {"stages": 2},
)
"""Changes to the library's choice, one at a time. A tile's change of shape is one change. Schedules that do not fit are left out.
"""


@dataclass(frozen=True, slots=True)
class Rung:
    """One schedule measured. change: what differs from the library's choice, "" for the choice itself; seconds: a launch."""

    change: str
    schedule: Schedule
    seconds: float

    def tflops(self, problem: GemmProblem) -> float:
        """Dense-equivalent speed."""
        return 2.0 * math.prod(problem.shape) / self.seconds / 1e12


def candidates(
    problem: Problem, m: int, n: int, place: Device, *, only: str = "", k: int = TYPICAL_K
) -> dict[str, Schedule]:
    """The library's choice, under "", and every alternative that differs from it, fits the target and has `only` in its name."""
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
    """Time the candidates on one problem, fastest first. Raises ArithmeticError when one of them computes wrongly."""
    place = require_device()
    problem = Problem("linear", a=gemm.dtype, b=gemm.dtype, out=gemm.out, accumulate=gemm.accumulate)
    schedules = candidates(problem, gemm.m, gemm.n, place, only=only, k=gemm.k)
    times = time_schedules(torch, gemm, schedules, protocol)
    rungs = [Rung(change, schedules[change], seconds) for change, seconds in times.items()]
    return sorted(rungs, key=lambda rung: rung.seconds)


def time_schedules(
    torch: Any, gemm: GemmProblem, schedules: Mapping[str, Schedule], protocol: Protocol
) -> dict[str, float]:
    """Seconds of a launch by the schedules' names, each verified first, then timed in bursts, interleaved.

    Raises ArithmeticError when one of them computes wrongly.
    """
    problem = Problem("linear", a=gemm.dtype, b=gemm.dtype, out=gemm.out)
    compile_all([(problem, schedule) for schedule in schedules.values()], require_device().target)
    operands = make_operands(torch, gemm, protocol.sets(gemm.compressed_bytes))
    states = [TensorState() for _ in operands.sparse]
    contenders = {c: _contender(torch, c, problem, s, operands, states) for c, s in schedules.items()}
    for change, contender in contenders.items():
        operands.poison()
        if not verify(torch, operands, 0, contender.result(0)).ok:
            raise ArithmeticError(f"{schedules[change]} computes wrongly on {gemm}")
    loads = {change: prepare(torch, c.call, operands.sets, protocol) for change, c in contenders.items()}
    bursts = {change: load.burst for change, load in loads.items()}
    times = interleave(bursts, protocol.rounds, lambda: time.sleep(protocol.pause_seconds))
    return {change: median(taken) for change, taken in times.items()}


def compile_all(wanted: Iterable[tuple[Problem, Schedule]], name: str) -> dict[tuple[Problem, Schedule], str]:
    """Compile side by side into the cache for a target, a kernel takes half a second; why not, where one does not compile."""
    pairs = list(wanted)
    if not pairs:
        return {}
    # A fork of a process that has threads and a GPU context may hang.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(len(pairs), os.cpu_count() or 1), mp_context=context) as pool:
        reasons = pool.map(refusal, *zip(*pairs, strict=True), [name] * len(pairs))
        return {pair: reason for pair, reason in zip(pairs, reasons, strict=True) if reason}


def refusal(problem: Problem, schedule: Schedule, name: str) -> str:
    """Compile into the cache; the reason where the kernel is refused, "" where not."""
    try:
        record_of(problem, schedule, name)
    except (ValueError, RuntimeError) as error:
        return str(error)
    return ""


def _contender(
    torch: Any, change: str, problem: Problem, schedule: Schedule, operands: Operands, states: list[TensorState]
) -> Contender:
    gemm, x, y = operands.problem, operands.x, operands.y
    dense, result = rows_of(x), rows_of(y)
    launchers = [state.launcher(s, problem, schedule, 0, 0) for state, s in zip(states, operands.sparse, strict=True)]
    launches = [each.bound(each.sized(gemm.n, dense, result), dense, result) for each in launchers]

    def call(index: int) -> Any:
        launches[index % len(launches)].on(torch.cuda.current_stream().cuda_stream)()
        return y

    return Contender(change or "chosen", call, "tokens", {})


def rows_of(tensor: Any) -> Rows:
    """A contiguous torch matrix."""
    rows, inner = tensor.shape
    width = tensor.element_size()
    return Rows(tensor.data_ptr(), inner, rows, inner * width, width, tensor)
