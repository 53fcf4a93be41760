"""Host time of a warm call, from the call to its return. The GPU still works when the call returns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from louver.measure.host_calls import CANNOT, calls_of
from louver.measure.host_parts import runtime_parts
from louver.measure.operands import make_operands
from louver.measure.problems import OUTPUTS, GemmProblem
from louver.measure.report.gemm import types_of
from louver.measure.start import start_times
from louver.runtime.device import require_device

SHAPE = (4096, 16, 4096)
"""M, N, K: few tokens, as in generation, where host time matters most."""

CALLS = 64
"""Calls of a batch. A stream's queue holds far more launches, so no call waits for a free place."""

BATCHES = 300
PROTOCOL = (
    f"{SHAPE[1]} tokens, a weight of {SHAPE[0]}×{SHAPE[2]}, PyTorch tensors on the default stream, one thread. Each call is "
    f"made {CALLS} times in a row, {BATCHES} times over and once before; the device is idle before each such batch. Of the "
    "batches' times per call: median, least and 90th percentile. Every product's result is compared with float64 first. Compiling "
    "and reading from disk: new processes with a cache directory of their own, three of each, up to the cubin in memory."
)


@dataclass(frozen=True, slots=True)
class HostTime:
    """Microseconds of a call over the batches: us: median, least_us: least, p90_us: 90th percentile.

    dtype, out: element types of operands and result; empty for a part of the runtime.
    """

    name: str
    us: float
    least_us: float
    p90_us: float
    dtype: str = ""
    out: str = ""

    @property
    def types(self) -> str:
        return types_of(self.dtype, self.out)


@dataclass(slots=True)
class HostTimes:
    """The measurements in order. missing: the reason for each call that was not measured, by name and types."""

    times: list[HostTime] = field(default_factory=list[HostTime])
    missing: dict[str, str] = field(default_factory=dict[str, str])


def problems(dtypes: Iterable[str]) -> list[GemmProblem]:
    """A problem for each result type. dtypes: from `parse_dtypes`."""
    return [GemmProblem(*SHAPE, dtype, out) for dtype in dtypes for out in OUTPUTS[dtype]]


def measure_host(torch: Any, wanted: Iterable[GemmProblem], *, calls: int = CALLS, batches: int = BATCHES) -> HostTimes:
    """Host times on the current device: of new processes, of the runtime's parts, and of the products of each problem.

    Raises ArithmeticError if a result of Louver is wrong.
    """
    found = HostTimes()
    synchronize = torch.cuda.synchronize

    def taken(name: str, work: Callable[[], object], dtype: str = "", out: str = "") -> None:
        found.times.append(summary(name, batch_times(work, synchronize, calls, batches), dtype, out))

    for name, seconds in start_times().items():
        found.times.append(summary(name, seconds))
    for name, work in runtime_parts(torch, require_device()).items():
        taken(name, work)
    for problem in wanted:
        operands = make_operands(torch, problem, sets=1)
        for call in calls_of(torch, operands):
            try:
                work = call.ready(torch)
            except CANNOT as error:
                if call.ours:
                    raise
                found.missing[f"{call.name}, {problem}"] = str(error).partition("\n")[0]
                continue
            taken(call.name, work, problem.dtype, problem.out)
    return found


def batch_times(
    work: Callable[[], object],
    synchronize: Callable[[], object],
    calls: int,
    batches: int,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of a call in each batch, after an untimed batch. synchronize: waits until the device is idle."""
    for _ in range(calls):
        work()
    found: list[float] = []
    for _ in range(batches):
        synchronize()
        begin = clock()
        for _ in range(calls):
            work()
        found.append((clock() - begin) / calls)
    synchronize()
    return found


def summary(name: str, seconds: Sequence[float], dtype: str = "", out: str = "") -> HostTime:
    """Median, least and 90th percentile of a call's batches. seconds: at least two values."""
    us = [taken * 1e6 for taken in seconds]
    p90 = statistics.quantiles(us, n=10, method="inclusive")[-1]
    return HostTime(name, statistics.median(us), min(us), p90, dtype, out)
