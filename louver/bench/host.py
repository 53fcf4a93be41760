"""Host time of a warm call: from the call to its return, the work itself left to the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from louver.bench.contenders import Contender, CuSparseLt, cublas, ours
from louver.bench.operands import make_operands
from louver.bench.problems import GemmProblem
from louver.bench.protocol import interleave, median

PROBLEM = GemmProblem(256, 64, 256, "f16")
"""Small: the GPU is done before the next call comes, so that no call waits for a place in the stream's queue."""

CALLS = 100
ROUNDS = 15
PROTOCOL = (
    f"linear of {PROBLEM}: series of {CALLS} calls to a drained stream, contenders interleaved, median of {ROUNDS} "
    "series; nothing allocated by Louver and torch.mm (out=), a result by cuSPARSELt and F.linear"
)


@dataclass(frozen=True, slots=True)
class HostTime:
    """A contender's host time. us: median microseconds of a call; least_us: of the best series."""

    name: str
    us: float
    least_us: float


def measure_host(torch: Any) -> list[HostTime]:
    """Host times on the current device, slowest last. What PyTorch was built without is left out."""
    operands = make_operands(torch, PROBLEM, sets=1)
    calls: dict[str, Callable[[], object]] = {
        "louver.linear": _first(ours(operands)),
        "torch.mm": _first(cublas(torch, operands)),
        "F.linear": lambda: torch.nn.functional.linear(operands.x, operands.dense[0]),
    }
    try:
        calls["torch._cslt_sparse_mm"] = _first(CuSparseLt(torch, operands).contender(0, transposed=True))
        calls["torch._cslt_sparse_mm"]()
    except RuntimeError:
        calls.pop("torch._cslt_sparse_mm", None)
    for call in calls.values():
        call()
    synchronize = torch.cuda.synchronize
    series = {name: _series(call, CALLS, synchronize) for name, call in calls.items()}
    times = interleave(series, ROUNDS, synchronize)
    found = [HostTime(name, median(taken) * 1e6, min(taken) * 1e6) for name, taken in times.items()]
    return sorted(found, key=lambda host: host.us)


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
