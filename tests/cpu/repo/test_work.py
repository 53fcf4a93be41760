from __future__ import annotations

import signal
import sys

import pytest

from support.work import calls, cpu_seconds


def test_work_without_end_is_ended() -> None:
    with pytest.raises(TimeoutError, match=r"more than 0\.05 seconds of work"), cpu_seconds(0.05):
        while True:
            pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0) and signal.getsignal(signal.SIGPROF) is signal.SIG_DFL
    with cpu_seconds(60):
        pass
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)


def test_calls_of_python_and_c_functions_are_counted() -> None:
    def inner() -> int:
        return len("ab")

    assert calls(lambda: [inner() for _ in range(10)]) - calls(lambda: [inner() for _ in range(4)]) == 12


def test_a_profiler_that_runs_goes_on() -> None:
    seen: list[str] = []

    def profiler(frame: object, event: str, argument: object) -> None:
        seen.append(event)

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        with pytest.raises(ZeroDivisionError):
            calls(lambda: 1 // 0)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
    assert seen
