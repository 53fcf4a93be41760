from __future__ import annotations

import threading

from louver.runtime.workspace import PER_THREAD_STREAM, workspace
from support.fake_driver import FakeDriver


def test_streams_and_captures_have_workspaces_of_their_own(fake: FakeDriver) -> None:
    one, same, other = workspace(0, 1, 1000, 4), workspace(0, 1, 900, 3), workspace(0, 2, 1000, 4)
    assert one == same
    assert len({one.sums, other.sums, workspace(1, 1, 1000, 4).sums}) == 3
    eager = workspace(0, 0xCB, 1000, 4)
    fake.captures[0xCB] = 7
    first = workspace(0, 0xCB, 1000, 4)
    assert first == workspace(0, 0xCB, 1000, 4) != eager
    fake.captures[0xCB] = 8
    assert workspace(0, 0xCB, 1000, 4) not in (first, eager)
    del fake.captures[0xCB]
    assert workspace(0, 0xCB, 1000, 4) == eager


def test_workspaces_grow_twofold_and_are_never_given_back(fake: FakeDriver) -> None:
    small = workspace(0, 1, 1000, 4)
    large = workspace(0, 1, 1001, 4)
    assert large.nbytes == 2000
    assert large.room == 8
    assert large.sums != small.sums
    assert workspace(0, 1, 1000, 9).room == 16
    assert not fake.called("cuMemFree")
    assert not fake.called("cuMemFreeAsync")
    assert small.sums % 256 == 0


def test_counters_begin_at_zero_on_a_stream_that_waits_for_no_other(fake: FakeDriver) -> None:
    held = workspace(0, 1, 1000, 4)
    ((address, byte, nbytes, stream),) = fake.called("cuMemsetD8Async")
    assert (address, byte) == (held.counters, 0)
    assert nbytes >= 16
    assert fake.called("cuStreamSynchronize") == [(stream,)]
    assert fake.called("cuStreamCreate") == [("non-blocking",)]
    assert fake.called("cuThreadExchangeStreamCaptureMode") == [("relaxed",), ("global",)]


def test_threads_have_their_own_where_a_handle_is_a_stream_of_each(fake: FakeDriver) -> None:
    found = [workspace(0, PER_THREAD_STREAM, 8, 1)]
    thread = threading.Thread(target=lambda: found.append(workspace(0, PER_THREAD_STREAM, 8, 1)))
    thread.start()
    thread.join()
    assert found[0] != found[1]
    assert found[0] == workspace(0, PER_THREAD_STREAM, 8, 1)
