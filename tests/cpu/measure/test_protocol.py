from __future__ import annotations

import contextlib
import gc
import itertools
import weakref
from types import SimpleNamespace

import pytest

from louver.measure.protocol import SHORT, Protocol, interleave, median, spread
from louver.measure.sustained import Graph, capture


def test_interleaving_takes_turns_and_pauses_before_each_burst() -> None:
    log: list[str] = []
    clock = itertools.count(1)

    def burst(name: str):
        def run() -> float:
            log.append(name)
            return float(next(clock))

        return run

    times = interleave({name: burst(name) for name in "abc"}, 3, lambda: log.append("-"))
    assert "".join(log) == "-a-b-c" + "-b-c-a" + "-c-a-b"
    assert times == {"a": (1.0, 6.0, 8.0), "b": (2.0, 4.0, 9.0), "c": (3.0, 5.0, 7.0)}


def test_interleaving_nobody_is_nothing() -> None:
    assert interleave({}, 3, lambda: None) == {}


def test_median_and_spread() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    assert spread([2.0, 1.5, 2.2]) == pytest.approx(0.25)


def test_weights_rotate_over_more_than_the_cache() -> None:
    protocol = Protocol()
    for weight_bytes in (1 << 22, 18_874_368, 132_120_576, 10**9):
        sets = protocol.sets(weight_bytes)
        assert sets >= 2
        assert sets * weight_bytes >= protocol.rotation_bytes
        assert sets == 2 or (sets - 1) * weight_bytes < protocol.rotation_bytes
    assert protocol.sets(4096) == protocol.most_sets


@pytest.mark.parametrize("seconds", [1e-6, 3.7e-5, 1.63e-3, 0.02])
@pytest.mark.parametrize("sets", [2, 7, 11])
def test_graphs_hold_whole_rotations_and_bursts_stay_short(seconds: float, sets: int) -> None:
    protocol = Protocol()
    launches = protocol.graph_launches(seconds, sets)
    assert launches % sets == 0
    assert launches >= protocol.launches
    assert launches * seconds >= protocol.graph_seconds
    graph_seconds = launches * seconds
    replays = protocol.burst_replays(graph_seconds)
    assert replays == 1 or (replays + 1) * graph_seconds <= protocol.burst_seconds * 1.0001


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 0},
        {"most_algorithms": 0},
        {"launches": 0},
        {"graph_seconds": 0.0},
        {"graph_seconds": 1.0},
        {"pause_seconds": -1.0},
    ],
)
def test_refuses_what_cannot_be_timed(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="got"):
        Protocol(**change)  # pyright: ignore[reportArgumentType]


def test_ranking_runs_are_shorter_than_bursts() -> None:
    protocol = Protocol(rank_seconds=0.02, burst_seconds=0.1)
    assert protocol.rank_replays(0.004) == 4
    assert protocol.burst_replays(0.004) == 24
    assert protocol.rank_replays(0.05) == 1
    assert (protocol.rank_pause_seconds, Protocol(pause_seconds=0).rank_pause_seconds) == (0.02, 0)


def test_long_lists_keep_rounds_and_the_share_of_pauses() -> None:
    assert SHORT.rounds >= 3
    assert SHORT.pause_seconds >= SHORT.burst_seconds
    # A burst has many graphs of many launches, as far as these are short.
    assert SHORT.burst_replays(SHORT.graph_seconds) >= 7
    assert (SHORT.launches, SHORT.rotation_bytes) == (Protocol().launches, Protocol().rotation_bytes)


@pytest.mark.parametrize(("replay_ms", "replays"), [(4.0, [1, 1]), (0.5, [1, 1, 1, 1, 1, 1])])
def test_a_long_replay_is_not_repeated_for_an_estimate(replay_ms: float, replays: list[int]) -> None:
    played: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0

        def record(self) -> None:
            self.at = len(played)

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, other: Event) -> float:
            return (other.at - self.at) * replay_ms

    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    graph = Graph(torch, SimpleNamespace(replay=lambda: played.append(1)), launches=2, call=played.append)
    assert graph.estimate(0.003) == pytest.approx(replay_ms * 1e-3 / 2)
    assert played == replays


def test_a_graph_keeps_what_it_reads() -> None:
    """Replays read the memory of the operands, which nothing but the captured call may hold."""

    class Operand:
        def __call__(self, index: int) -> None: ...

    cuda = SimpleNamespace(CUDAGraph=object, graph=lambda _: contextlib.nullcontext(), synchronize=lambda: None)
    operand = Operand()
    held, graph = weakref.ref(operand), capture(SimpleNamespace(cuda=cuda), operand, 3)
    del operand
    gc.collect()
    assert held() is not None and graph.launches == 3
    del graph
    gc.collect()
    assert held() is None


def test_says_what_it_does() -> None:
    words = Protocol(rounds=7, burst_seconds=0.08, algorithms=3).describe()
    assert "0.08 s" in words
    assert "7 rounds" in words
    assert "the 3 fastest" in words and "segment-K" in words
