"""Captures work in CUDA graphs and times the replays with events."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

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
