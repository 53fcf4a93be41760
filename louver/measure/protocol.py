"""The protocol of timings: bursts of many launches, contenders interleaved in rounds, medians; and a run's time limit."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Protocol:
    """The constants of a measurement.

    rounds: bursts of each contender. burst_seconds: longest burst, with its untimed first replay. pause_seconds: idle
    time before each burst, so that the clock recovers. launches, graph_seconds: least launches and seconds of a graph.
    rotation_bytes: compressed weights that a graph rotates over, so that they leave the L2 cache; 0 for one weight that
    stays in the cache. most_sets: most weights, a limit for small ones. settle_seconds, sustained_seconds: load before
    and during a sustained measurement.
    Of cuSPARSELt: most_algorithms: most algorithms that are tried; 1 also disables split K. algorithms: number that is
    ranked after short runs, each for rank_seconds. finalists: contenders in all rounds, and algorithms tried in both
    output orders.
    """

    rounds: int = 5
    burst_seconds: float = 0.1
    pause_seconds: float = 0.05
    launches: int = 10
    graph_seconds: float = 0.003
    rotation_bytes: int = 200_000_000
    most_sets: int = 64
    most_algorithms: int = 64
    algorithms: int = 4
    rank_seconds: float = 0.03
    finalists: int = 2
    settle_seconds: float = 0.5
    sustained_seconds: float = 1.5

    def __post_init__(self) -> None:
        if min(self.rounds, self.launches, self.most_algorithms) < 1:
            raise ValueError(
                f"rounds, launches and most_algorithms are at least 1, got {self.rounds}, {self.launches} and "
                f"{self.most_algorithms}"
            )
        if not 0 < self.graph_seconds <= self.burst_seconds or self.pause_seconds < 0:
            raise ValueError(
                f"a graph lasts more than 0 s and at most a burst, and a pause 0 s or more, got {self.graph_seconds}, "
                f"{self.burst_seconds} and {self.pause_seconds} s"
            )

    def sets(self, weight_bytes: int) -> int:
        """Operand sets to rotate over: 1, or 2 to `most_sets`. weight_bytes: size of one compressed weight."""
        if not self.rotation_bytes:
            return 1
        return min(self.most_sets, max(2, -(-self.rotation_bytes // weight_bytes)))

    def graph_launches(self, seconds: float, sets: int) -> int:
        """Launches in a graph, a multiple of `sets`. seconds: estimated time of one launch."""
        wanted = max(self.launches, math.ceil(self.graph_seconds / seconds))
        return -(-wanted // sets) * sets

    def burst_replays(self, graph_seconds: float) -> int:
        """Timed replays of a burst, at least 1. graph_seconds: duration of one replay."""
        return _replays(self.burst_seconds, graph_seconds)

    def rank_replays(self, graph_seconds: float) -> int:
        """Timed replays of a ranking run, at least 1. graph_seconds: duration of one replay."""
        return _replays(self.rank_seconds, graph_seconds)

    @property
    def rank_pause_seconds(self) -> float:
        """Idle time before a ranking run, no longer than the run: a short run slows the clock down less."""
        return min(self.pause_seconds, self.rank_seconds)

    def describe(self) -> str:
        """The protocol in words, for the record."""
        return (
            f"{self.describe_bursts()} cuSPARSELt: the best of its algorithms (the {self.algorithms} fastest in short runs, "
            f"the default) in its own output order, of the {self.finalists} fastest in the other order too, and of the fastest with "
            "segment-K; the other order only where a launch in it is about as fast."
        )

    def describe_bursts(self) -> str:
        """The same without the libraries."""
        rotated = (
            f"weights rotated over at least {self.rotation_bytes / 1e6:.0f} MB compressed (at most {self.most_sets} weights)"
            if self.rotation_bytes
            else "the same operands in each launch"
        )
        return (
            f"Bursts: CUDA graphs of at least {self.launches} launches, replayed for at most {self.burst_seconds:g} s "
            f"after a pause of {self.pause_seconds:g} s, the first replay untimed; contenders interleaved, median of "
            f"{self.rounds} rounds; {rotated}; one process, same data, same output type."
        )


SHORT = Protocol(rounds=3, burst_seconds=0.025, pause_seconds=0.025, rank_seconds=0.02)
"""For long lists of problems. Pauses are as long as bursts, which keeps the mean power low."""


def _replays(seconds: float, graph_seconds: float) -> int:
    """Timed replays that last `seconds` together with an untimed one."""
    return max(1, int(seconds / graph_seconds) - 1)


def interleave(
    bursts: Mapping[K, Callable[[], float]], rounds: int, pause: Callable[[], None]
) -> dict[K, tuple[float, ...]]:
    """Burst times of each contender by round. Each round rotates the order by one, and each burst follows a pause."""
    names = list(bursts)
    times: dict[K, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names) if names else 0
        for name in names[start:] + names[:start]:
            pause()
            times[name].append(bursts[name]())
    return {name: tuple(taken) for name, taken in times.items()}


def median(times: Sequence[float]) -> float:
    """The middle time."""
    return statistics.median(times)


def spread(times: Sequence[float]) -> float:
    """Greatest distance from the median, as a fraction of the median."""
    middle = median(times)
    return max(abs(time - middle) for time in times) / middle


FINISH_SECONDS = 10.0
"""Time reserved for tables and pictures."""


@dataclass(slots=True)
class Spent:
    """The duration of a part, set when the part ends."""

    seconds: float = 0.0


class Budget:
    """A time limit for parts of about equal duration. The time starts when the object is made.

    seconds: the limit, None for no limit. Raises ValueError unless it is positive.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        if seconds is not None and not seconds > 0:
            raise ValueError(f"a budget is a positive number of seconds, got {seconds}")
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds - FINISH_SECONDS
        self._longest = 0.0

    def suffices(self) -> bool:
        """Whether a part as long as the longest so far ends in time."""
        return self._end is None or self._clock() + self._longest <= self._end

    @contextmanager
    def spending(self) -> Generator[Spent]:
        begin, spent = self._clock(), Spent()
        yield spent
        spent.seconds = self._clock() - begin
        self._longest = max(self._longest, spent.seconds)


def spread_out(count: int) -> list[int]:
    """The numbers 0 to count - 1 in the order of their reversed bits: the first few cover the whole range."""
    bits = max(count - 1, 0).bit_length()
    return sorted(range(count), key=lambda index: f"{index:0{bits}b}"[::-1])
