"""Speed under sustained load, where power is the limit: time, clock and power over seconds of the same work."""

from __future__ import annotations

import gc
import math
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from louver.measure.machine import gpu_uuid, nvidia_smi
from louver.measure.protocol import Protocol, interleave

K = TypeVar("K")

ESTIMATE_REPLAYS = 3


@dataclass(frozen=True, slots=True)
class Graph:
    """A captured graph of `launches` launches. call: what was captured; it keeps the memory that the graph reads and writes."""

    torch: Any
    graph: Any
    launches: int
    call: Callable[[int], object]

    def seconds(self, replays: int) -> float:
        """Seconds of a launch, over `replays` timed replays after an untimed one."""
        cuda = self.torch.cuda
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self.graph.replay()
        begin.record()
        for _ in range(replays):
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / (replays * self.launches)

    def estimate(self, enough: float) -> float:
        """Seconds of a launch, over one replay if it lasts `enough` seconds, else over more."""
        first = self.seconds(1)
        return first if first * self.launches >= enough else self.seconds(ESTIMATE_REPLAYS)


def capture(torch: Any, call: Callable[[int], object], launches: int) -> Graph:
    """Capture `call(0)` to `call(launches - 1)`. `call` must have run before, so that it creates no objects here."""
    # An earlier graph that a collection frees during the capture would end it, and PyTorch collects nothing before.
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(launches):
            call(index)
    torch.cuda.synchronize()
    return Graph(torch, graph, launches, call)


@dataclass(frozen=True, slots=True)
class Load:
    """A contender's work, ready to be timed. estimate: seconds of one launch, from a short run."""

    graph: Graph
    estimate: float
    protocol: Protocol

    def burst(self) -> float:
        """Seconds of a launch in one burst."""
        return self.graph.seconds(self.protocol.burst_replays(self.estimate * self.graph.launches))

    def replays_for(self, seconds: float) -> int:
        return max(1, math.ceil(seconds / (self.estimate * self.graph.launches)))


def prepare(torch: Any, call: Callable[[int], object], sets: int, protocol: Protocol) -> Load:
    """Run `call` once with each operand set, then capture as many launches as the protocol asks for."""
    for index in range(sets):
        call(index)
    torch.cuda.synchronize()
    short = capture(torch, call, -(-protocol.launches // sets) * sets)
    estimate = short.seconds(ESTIMATE_REPLAYS)
    launches = protocol.graph_launches(estimate, sets)
    graph = short if launches == short.launches else capture(torch, call, launches)
    return Load(graph, estimate, protocol)


def take_turns(loads: Mapping[K, Load], protocol: Protocol) -> dict[K, tuple[float, ...]]:
    """Seconds of a launch in each burst of each load. The loads run in turns, see `interleave`."""
    bursts = {name: load.burst for name, load in loads.items()}
    return interleave(bursts, protocol.rounds, lambda: time.sleep(protocol.pause_seconds))


FIELDS = ("clocks.sm", "power.draw.instant")
INTERVAL_MS = 50
EXIT_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading. at: seconds of time.monotonic. clock: MHz. power: watts."""

    at: float
    clock: float
    power: float


@dataclass(frozen=True, slots=True)
class Sustained:
    """A sustained measurement. us: microseconds of a launch. clock_mhz, power_w: means; None without readings."""

    us: float
    clock_mhz: float | None
    power_w: float | None

    def to_json(self, flops: float) -> dict[str, float | None]:
        """JSON values with TFLOP/s and TFLOP/J. flops: dense-equivalent, of one launch."""
        return {**asdict(self), "tflops": self.tflops(flops), "tflop_per_joule": self.tflop_per_joule(flops)}

    def tflops(self, flops: float) -> float:
        """Dense-equivalent TFLOP/s."""
        return flops / self.us * 1e-6

    def tflop_per_joule(self, flops: float) -> float | None:
        """Dense-equivalent TFLOP per joule."""
        return self.tflops(flops) / self.power_w if self.power_w else None


class Sampler:
    """Reads nvidia-smi in the background, as a context manager. Without nvidia-smi there are no samples."""

    def __init__(self, gpu: str) -> None:
        self._command = [*nvidia_smi(FIELDS, gpu), "-lms", str(INTERVAL_MS)]
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Sampler:
        try:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        except OSError:
            return self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            # The tool may hang in the driver of a busy machine. Its output so far is used.
            self._process.kill()
        self._thread.join(EXIT_SECONDS)

    def _read(self) -> None:
        if self._process is None or self._process.stdout is None:
            return
        for line in self._process.stdout:
            sample = parse_sample(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)


def parse_sample(line: str, at: float) -> Sample | None:
    """A sample from a line of nvidia-smi's output; None without two numbers, when the GPU lacks a field."""
    try:
        clock, power = (float(part) for part in line.split(","))
    except ValueError:
        return None
    return Sample(at, clock, power)


def mean_between(samples: Sequence[Sample], begin: float, end: float) -> tuple[float, float] | None:
    """Mean clock and power of the samples between two times; None without samples."""
    inside = [sample for sample in samples if begin <= sample.at <= end]
    if not inside:
        return None
    return statistics.fmean(s.clock for s in inside), statistics.fmean(s.power for s in inside)


def sustain(torch: Any, load: Load, protocol: Protocol) -> Sustained:
    """Run the load until it settles, then time it while clock and power are read."""
    with Sampler(gpu_uuid(torch)) as sampler:
        load.graph.seconds(load.replays_for(protocol.settle_seconds))
        begin = time.monotonic()
        seconds = load.graph.seconds(load.replays_for(protocol.sustained_seconds))
        end = time.monotonic()
    means = mean_between(sampler.samples, begin, end)
    clock, power = means if means is not None else (None, None)
    return Sustained(seconds * 1e6, clock, power)
