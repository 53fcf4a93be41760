"""Device memory that launches of one stream share: sums of ranges of K, and counters that each launch leaves at 0.

It stays for the life of the process, since a CUDA graph may hold its addresses. A larger one takes the place of a smaller one, and
has twice its size at least, so that all together are at most twice the largest.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple, TypeAlias

from louver.runtime.driver import api, call, capture_of, device_context, relaxed_capture

ALIGNMENT = 256
"""Of the sums, in bytes."""

COUNTER_BYTES = 4

PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD: a handle that is another stream in each thread."""

Key: TypeAlias = tuple[int, int, int, int]
"""Device, stream, capture, and thread where the handle says no more than that."""


class Workspace(NamedTuple):
    """Addresses of the sums and of the counters, and the room for each: `nbytes`, and `room` counters of 4 bytes."""

    sums: int
    counters: int
    nbytes: int
    room: int


def workspace(ordinal: int, stream: int, nbytes: int, count: int) -> Workspace:
    """One with room for so many bytes of sums and so many counters, for launches to `stream` on a device.

    Streams have one each. So has each capture: its graph may be replayed on another stream. May be called while a stream is captured.
    """
    thread = threading.get_ident() if stream == PER_THREAD_STREAM else 0
    key = ordinal, stream, capture_of(stream), thread
    with _lock():
        held = _held().get(key)
        if held is None or held.nbytes < nbytes or held.room < count:
            held = _held()[key] = _made(ordinal, held, nbytes, count)
        return held


def _made(ordinal: int, smaller: Workspace | None, nbytes: int, count: int) -> Workspace:
    if smaller is not None:
        nbytes, count = max(nbytes, 2 * smaller.nbytes), max(count, 2 * smaller.room)
    first = -(-count * COUNTER_BYTES // ALIGNMENT) * ALIGNMENT
    doing = f"allocating a workspace of {first + nbytes} bytes"
    with device_context(ordinal), relaxed_capture():
        address = int(call("cuMemAlloc", first + nbytes, doing=doing))
        stream = _stream(ordinal)
        call("cuMemsetD8Async", address, 0, first, stream, doing=doing)
        call("cuStreamSynchronize", stream, doing=doing)
    return Workspace(address + first, address, nbytes, count)


@functools.cache
def _stream(ordinal: int) -> object:
    """A stream of Louver's own, which waits for no other: the default one may not be used while another is captured."""
    return call(
        "cuStreamCreate", api().CUstream_flags.CU_STREAM_NON_BLOCKING, doing=f"making a stream on device {ordinal}"
    )


@functools.cache
def _held() -> dict[Key, Workspace]:
    return {}


@functools.cache
def _lock() -> threading.Lock:
    return threading.Lock()
