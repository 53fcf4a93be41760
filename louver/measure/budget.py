"""The time limit of a benchmark, in wall-clock seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

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
