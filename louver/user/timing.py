"""Launches timed side by side on the caller's stream, for a choice between kernels that compute the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

from louver.runtime.device import device
from louver.runtime.driver import DriverError
from louver.runtime.events import Event
from louver.runtime.memory import DeviceBuffer

SECONDS = 0.2
"""Time that the launches of one choice take together, about; each candidate is launched `LEAST` times at least."""

LEAD = 4
"""Times that memory is filled before each launch: the stream is still busy with it when the launch has come from Python."""

LEAST, MOST = 3, 25
"""Timed launches of a candidate."""

SLOWER = 2.0
"""A candidate whose first time is so many times the best one's is timed no more."""

TOO_LARGE = 701
"""CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: a CTA needs more than an SM has."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A launch to be timed. before, after: what its user wants done around each launch, untimed."""

    launch: Callable[[], None]
    before: Callable[[], None]
    after: Callable[[Exception | None], None]


def measure(trials: Sequence[Trial], ordinal: int, stream: int) -> list[float]:
    """Seconds of a launch of each, with nothing of its arrays in the L2 cache: medians, rounds taken in turns.

    math.inf where an SM has no room for the kernel. Raises DriverError where nothing can be launched, or a kernel faults.
    """
    with ExitStack() as used:
        # As large as the cache twice: earlier reads and writes are not there any longer.
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
    """The median time of each run, after an untimed one; those far from the best are run twice only."""
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
