"""Host time of a warm call: from the call to its return, the work itself left to the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from louver.bench.contenders import DENSE_CALLS, REFUSALS, Contender, CuSparseLt, cublas, ours
from louver.bench.operands import Operands, make_operands
from louver.bench.problems import OUTPUTS, GemmProblem
from louver.bench.protocol import interleave, median

SHAPE = (256, 64, 256)
CALLS = 100
ROUNDS = 15
PROTOCOL = (
    f"linear of {'×'.join(map(str, SHAPE))}: series of {CALLS} calls to a drained stream, contenders interleaved, median of {ROUNDS} "
    "series; nothing allocated by Louver and torch.mm (out=), a result by all others"
)


@dataclass(frozen=True, slots=True)
class HostTime:
    """A contender's host time. us: median microseconds of a call; least_us: of the best series.

    dtype, out: element types of operands and result.
    """

    name: str
    us: float
    least_us: float
    dtype: str
    out: str


def problems(dtypes: Iterable[str]) -> list[GemmProblem]:
    """A problem for each kind of result, of element types as `parse_dtypes` gives them.

    Small: the GPU is done before the next call comes, so that no call waits for a place in the stream's queue.
    """
    return [GemmProblem(*SHAPE, dtype, out) for dtype in dtypes for out in OUTPUTS[dtype]]


def measure_host(torch: Any, problem: GemmProblem) -> list[HostTime]:
    """Host times on the current device, slowest last. What PyTorch has no call for, or was built without, is left out."""
    operands = make_operands(torch, problem, sets=1)
    calls = {"louver.linear": _first(ours(operands)), **_vendors(torch, operands)}
    for call in calls.values():
        call()
    synchronize = torch.cuda.synchronize
    series = {name: _series(call, CALLS, synchronize) for name, call in calls.items()}
    times = interleave(series, ROUNDS, synchronize)
    types = (problem.dtype, problem.out)
    found = [HostTime(name, median(taken) * 1e6, min(taken) * 1e6, *types) for name, taken in times.items()]
    return sorted(found, key=lambda host: host.us)


def _vendors(torch: Any, operands: Operands) -> dict[str, Callable[[], object]]:
    """The libraries' calls that take the problem."""
    makers: dict[str, Callable[[], Callable[[], object]]] = {
        DENSE_CALLS.get((operands.problem.dtype, operands.problem.out), ""): lambda: _first(cublas(torch, operands)),
        "torch._cslt_sparse_mm": lambda: _first(CuSparseLt(torch, operands).contender(0, transposed=True)),
    }
    if operands.problem.bits == 16:
        makers["F.linear"] = lambda: lambda: torch.nn.functional.linear(operands.x, operands.dense[0])
    calls: dict[str, Callable[[], object]] = {}
    for name, make in makers.items():
        try:
            call = make()
            call()
        except REFUSALS:
            continue
        calls[name] = call
    return calls


def _first(contender: Contender) -> Callable[[], object]:
    return lambda: contender.call(0)


def _series(call: Callable[[], object], calls: int, synchronize: Callable[[], object]) -> Callable[[], float]:
    """A function that gives the mean seconds of a call over a series."""

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        taken = time.perf_counter() - begin
        synchronize()
        return taken / calls

    return run
