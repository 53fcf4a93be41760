"""The sides of a run: made, compared, timed in turns. A side that fails has its error as reason, and no time."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import torch

from louver.measure.machine import gpu_uuid
from louver.measure.model.stack import Shape
from louver.measure.protocol import Budget
from louver.measure.report.model import DENSE_BF16, DENSE_E4M3, FASTER, SPARSE_BF16, SPARSE_E4M3, speedups
from louver.measure.sustained import Sampler, mean_between

TURNS = 5
RUNS = 4
"""Timed calls of a turn. One more before them is not timed."""

GRAPH_SECONDS = 4e-3
"""Replays of a graph last at least so long in a turn."""

PROTOCOL = (
    f"Times are the median of {TURNS} turns through all sides; a turn is a call that is not timed, then {RUNS} timed ones, of a "
    f"graph as many as last {GRAPH_SECONDS * 1e3:g} ms."
)


def warm(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, after it was called until it compiles no more."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return call


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of a graph of the call."""
    warm(call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def milliseconds(call: Callable[[], Any], runs: int) -> float:
    """Of one call, the mean of some after one that is not timed."""
    call()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(runs):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / runs


def in_turns(calls: Mapping[str, Callable[[], Any]], *, graphs: bool) -> dict[str, float]:
    """The median milliseconds of each call."""
    runs = dict.fromkeys(calls, RUNS)
    if graphs:
        runs = {name: max(RUNS, round(GRAPH_SECONDS * 1e3 / milliseconds(call, 1))) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, call in calls.items():
            times[name].append(milliseconds(call, runs[name]))
    return {name: statistics.median(each) for name, each in times.items()}


SETTLE_SECONDS = 1.0
SECONDS = 2.0


def joules_of_a_call(torch: Any, call: Callable[[], Any]) -> tuple[float, str]:
    """The joules of a call, mean of about `SECONDS` of calls after `SETTLE_SECONDS` of the same, and how they were
    found: NVML's counter of energy where its Python package is installed, else mean power of nvidia-smi times seconds.

    Raises OSError if neither works.
    """
    call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    once = max(time.perf_counter() - begin, 1e-6)
    _repeat(torch, call, max(1, round(SETTLE_SECONDS / once)))
    count = max(1, round(SECONDS / once))
    counter = _counter(torch)
    if counter is not None:
        before = counter()
        _repeat(torch, call, count)
        return (counter() - before) / count, "NVML's counter of energy"
    with Sampler(gpu_uuid(torch)) as sampler:
        begin = time.monotonic()
        _repeat(torch, call, count)
        end = time.monotonic()
    means = mean_between(sampler.samples, begin, end)
    if means is None:
        raise OSError("joules are read by nvidia-ml-py or nvidia-smi, got neither on this machine")
    return means[1] * (end - begin) / count, "mean power of nvidia-smi times seconds"


def _repeat(torch: Any, call: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        call()
    torch.cuda.synchronize()


def _counter(torch: Any) -> Callable[[], float] | None:
    """Reads the joules of the current GPU since the driver was loaded; None without NVML."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu_uuid(torch))
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    # Each version of the package has errors of its own.
    except Exception:
        return None
    return lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000


DIFFERENCES: Final = {SPARSE_BF16: 0.05, DENSE_E4M3: 0.4, SPARSE_E4M3: 0.4}
"""The greatest difference of a side's outputs from those of dense bf16, relative to their norm."""


class Kept(Protocol):
    """Called after each row with all that was found so far."""

    def __call__(self, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], /) -> None: ...


class Run:
    """The sides of one model, their reasons, and facts for the record. say: shows progress.

    over: the dense sides that each sparse one is compared with.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        budget: Budget,
        say: Callable[[str], None],
        over: Mapping[str, tuple[str, ...]] = FASTER,
    ) -> None:
        self.name, self.shape, self.budget, self.say, self.over = name, shape, budget, say, over
        self.sides: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    def add(self, side: str, make: Callable[[], Any]) -> None:
        """Make a side. An error becomes its reason."""
        try:
            self.sides[side] = make()
            torch.cuda.synchronize()
        except Exception as error:
            self.reasons[side] = shown(error)
        torch.cuda.empty_cache()
        self.say(f"{self.name}, {side}: {self.reasons.get(side, 'made')}")

    def compare(self, on: Callable[[Any], Any]) -> None:
        """Drop the sides whose outputs are not those of dense bf16. on: the call of a side.

        Raises RuntimeError without dense bf16.
        """
        if DENSE_BF16 not in self.sides:
            raise RuntimeError(f"all sides are compared with {DENSE_BF16}, got {self.reasons[DENSE_BF16]}")
        expected = on(self.sides[DENSE_BF16]).float()
        differences = self.facts.setdefault("difference", {})
        for side, most in DIFFERENCES.items():
            if side not in self.sides:
                continue
            try:
                found = float((on(self.sides[side]).float() - expected).norm() / expected.norm())
                differences[side] = max(differences.get(side, 0.0), round(found, 5))
                if not found < most:
                    raise ArithmeticError(f"outputs differ by {found:.3f} of their norm, at most {most} is expected")
            except Exception as error:
                self.reasons[side] = shown(error)
                del self.sides[side]

    def row(
        self,
        mode: str,
        case: str,
        tokens: int,
        make: Callable[[], Callable[[Any], Any]],
        *,
        graphs: bool,
        repeats: int = 1,
    ) -> dict[str, Any]:
        """Times a case on all sides. make: gives the call of a side, which does the work of the case `repeats` times."""
        reasons = dict(self.reasons)
        times: dict[str, float] = {}
        if not self.budget.suffices():
            reasons |= dict.fromkeys(self.sides, "the time that the run was given ended")
        else:
            with self.budget.spending():
                times = self._times(make, reasons, graphs=graphs)
        ms = {side: round(each / repeats, 5) for side, each in times.items()}
        gains = ", ".join(f"{side} {gain:.3f} ×" for side, gain in speedups(ms, self.over).items())
        self.say(f"{self.name}, {mode} {case}: {gains or '; '.join(reasons.values())}")
        return {"model": self.name, "case": case, "mode": mode, "tokens": tokens, "ms": ms, "reasons": reasons}

    def _times(
        self, make: Callable[[], Callable[[Any], Any]], reasons: dict[str, str], *, graphs: bool
    ) -> dict[str, float]:
        """The milliseconds of the sides that run; adds the errors of the others to the reasons."""
        try:
            on = make()
            calls: dict[str, Callable[[], Any]] = {}
            for side, model in self.sides.items():
                try:
                    calls[side] = (captured if graphs else warm)(lambda model=model: on(model))
                except Exception as error:
                    reasons[side] = shown(error)
            return in_turns(calls, graphs=graphs)
        except Exception as error:
            reasons |= dict.fromkeys(self.sides, shown(error))
            return {}
        finally:
            torch.cuda.empty_cache()

    def joules(self, on: Callable[[Any], Any], tokens: int) -> None:
        """Joules of a token on each side. on: the call of a side, with so many tokens."""
        found = dict[str, float]()
        for side, model in self.sides.items():
            if not self.budget.suffices():
                return
            try:
                joules, how = joules_of_a_call(torch, lambda model=model: on(model))
                found[side] = round(joules / tokens, 7)
                self.facts["joules_by"] = how
            except OSError as error:
                self.facts["joules_reason"] = str(error)
                return
        self.facts["joules_a_token"] = found


def shown(error: Exception) -> str:
    """An error in one line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]
