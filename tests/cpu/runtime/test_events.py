"""Events on a recording driver: what is asked of it, and what becomes of its answers."""

from __future__ import annotations

import pytest

from louver.runtime.driver import DriverError
from louver.user.timing import Event
from support.fake_driver import FakeDriver


def test_events_are_recorded_timed_and_released(fake: FakeDriver) -> None:
    handles = iter(("first", "second"))
    fake._cuEventCreate = lambda _: next(handles)  # type: ignore[attr-defined]
    fake._cuEventElapsedTime = lambda begin, end: 2.5  # type: ignore[attr-defined]
    begin, end = Event(0), Event(0)
    begin.record(7)
    end.record(7)
    assert begin.seconds_until(end) == 2.5e-3
    assert fake.called("cuEventRecord") == [("first", 7), ("second", 7)]
    assert fake.called("cuEventSynchronize") == [("second",)]
    assert fake.called("cuEventElapsedTime") == [("first", "second")]
    begin.close()
    assert fake.called("cuEventDestroy") == [("first",)]


def test_what_the_driver_refuses_is_said(fake: FakeDriver) -> None:
    fake.fails["cuEventCreate"] = [1]
    with pytest.raises(DriverError, match="creating an event failed with CUDA_ERROR_INVALID_VALUE"):
        Event(0)
