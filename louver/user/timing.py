"""Times launches in turns on the caller's stream, to choose between kernels with the same result.

Times on a device are those of events in a stream, and between two events.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from louver.runtime.device import device
from louver.runtime.driver import DriverError, call, device_context
from louver.runtime.memory import DeviceBuffer


class Event:
    """A point in the work of a stream, with the time at which it was reached. ordinal: device of the stream.

    `close` releases the event.
    """

    __slots__ = ("_handle", "ordinal")

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        with device_context(ordinal):
            self._handle: Any = call("cuEventCreate", 0, doing="creating an event")

    def record(self, stream: int) -> None:
        """Place the event after all work sent to `stream` (a CUstream handle) so far."""
        with device_context(self.ordinal):
            call("cuEventRecord", self._handle, stream, doing="recording an event")

    def seconds_until(self, later: Event) -> float:
        """The seconds from this event to a later one, exact to about half a microsecond. Waits for the later event."""
        with device_context(self.ordinal):
            call("cuEventSynchronize", later._handle, doing="waiting for an event")
            return float(call("cuEventElapsedTime", self._handle, later._handle, doing="timing")) * 1e-3

    def close(self) -> None:
        """Release the event."""
        with device_context(self.ordinal):
            call("cuEventDestroy", self._handle, doing="releasing an event")


SECONDS = 0.2
"""Approximate total time of the rounds of a choice, within the limits of `LEAST` and `MOST`."""

LEAD = 4
"""Memory fills before each launch. They keep the stream busy until Python has issued the launch."""

LEAST, MOST = 3, 25
"""Fewest and most rounds. In each, the candidates near the best are launched once."""

SLOWER = 2.0
"""A candidate whose first time is this many times the best one is not timed again."""

TOO_LARGE = 701
"""CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: a CTA needs more than an SM has."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A launch to be timed. before, after: untimed actions around each launch."""

    launch: Callable[[], None]
    before: Callable[[], None]
    after: Callable[[Exception | None], None]


def measure(trials: Sequence[Trial], ordinal: int, stream: int) -> list[float]:
    """Median seconds of a launch of each trial, in interleaved rounds, with cold L2 cache. The result is math.inf if
    the kernel does not fit on an SM. Raises DriverError if a launch fails otherwise or a kernel faults.
    """
    with ExitStack() as used:
        # Twice the cache size, so that earlier reads and writes are evicted.
        rest = used.enter_context(closing(DeviceBuffer(2 * device(ordinal).l2_bytes, ordinal=ordinal, stream=stream)))
        begin, end = (used.enter_context(closing(Event(ordinal))) for _ in range(2))

        def once(trial: Trial) -> float:
            trial.before()
            for _ in range(LEAD):
                rest.fill(0)
            begin.record(stream)
            try:
                trial.launch()
            except DriverError as error:
                trial.after(error)
                if error.code != TOO_LARGE:
                    raise
                return math.inf
            end.record(stream)
            trial.after(None)
            return begin.seconds_until(end)

        return _medians([partial(once, trial) for trial in trials])


def _medians(runs: Sequence[Callable[[], float]]) -> list[float]:
    """The median time of each run after an untimed one. Runs far slower than the best are timed only once."""
    for run in runs:
        run()
    times = [[run()] for run in runs]
    best = min(first for (first,) in times)
    near = [index for index, (first,) in enumerate(times) if math.isfinite(first) and first <= SLOWER * best]
    for _ in range(_rounds(sum(times[index][0] for index in near)) if len(near) > 1 else 0):
        for index in near:
            times[index].append(runs[index]())
    return [statistics.median(each) for each in times]


def _rounds(seconds: float) -> int:
    """The number of rounds. seconds: of one round."""
    return max(LEAST, min(MOST, int(SECONDS / max(seconds, 1e-6))))
