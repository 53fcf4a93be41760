"""Work that is counted: a clock says more of the machine than of the code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def cpu_seconds(count: float) -> Iterator[None]:
    """Raise TimeoutError inside when the process has worked for `count` more seconds: work without end, on a busy machine too."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {count} seconds of work")

    kept = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, count)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, kept)


def calls(function: Callable[[], Any]) -> int:
    """The number of calls of Python and C functions that `function` makes."""
    count = 0

    def counted(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count
