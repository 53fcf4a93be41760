"""Host time of a warm call, from the call to its return. The GPU still works when the call returns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from louver.isa.bulk import TensorMap
from louver.measure.host_calls import CANNOT, calls_of
from louver.measure.operands import make_operands
from louver.measure.problems import OUTPUTS, GemmProblem
from louver.measure.report.gemm import types_of
from louver.measure.start import start_times
from louver.ptx.assembler import assemble
from louver.runtime.arrays import view
from louver.runtime.device import Device, require_device
from louver.runtime.memory import DeviceArray
from louver.runtime.module import ArgumentPack, load
from louver.runtime.tensormap import encode

THREADS = 384
SHARED_BYTES = 100 << 10
CTAS = 32
"""Grid size of a small product."""

EMPTY = """.version 8.0
.target {target}
.address_size 64
.visible .entry empty(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 d, .param .u32 n)
.reqntid {threads}
{{
    ret;
}}
"""


def runtime_parts(torch: Any, device: Device) -> dict[str, Callable[[], object]]:
    """The parts by name. The launch of an empty kernel is the least host time of any product's call."""
    x = DeviceArray.of(np.ones((64, 64), np.float16), ordinal=device.ordinal)
    tensor = torch.ones(64, 64, dtype=torch.float16, device=f"cuda:{device.ordinal}")
    tensor_map = TensorMap(x.buffer.address, 2, (64, 64), (128,), (64, 64), 128)
    encoded = encode(tensor_map)
    cubin = assemble(EMPTY.format(target=device.target, threads=THREADS), device.target).cubin
    kernel = load(cubin, "empty", threads=THREADS, dynamic_shared=SHARED_BYTES, ordinal=device.ordinal)
    pack = ArgumentPack(["tensormap", "tensormap", "u64", "u32"])

    def bind_and_launch() -> None:
        pack.bind(encoded, encoded, x.buffer.address, 64)
        kernel.launch(CTAS, pack)

    return {
        "empty launch": kernel.bound(CTAS, pack),
        "bind 4 arguments, empty launch": bind_and_launch,
        "encode a tensor map": lambda: encode(tensor_map),
        "view of a torch tensor": lambda: view(tensor),
        "view of a DeviceArray": lambda: view(x),
    }


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
