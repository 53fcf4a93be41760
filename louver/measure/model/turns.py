"""Times of calls of a GPU in turns, where each turn ends the power state that the side before left."""

# PyTorch's stubs leave many types unknown.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import torch

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
