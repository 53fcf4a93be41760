"""Device memory that the launches of one stream share: sums of ranges of K, and counters. Each launch resets its
counters to 0.

A workspace exists until the process ends, because a CUDA graph can contain its addresses. If a launch needs more, a new
workspace replaces the old one. It has at least twice the size, so all workspaces of a stream together have at most
twice the size of the largest.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple, TypeAlias

from louver.runtime.driver import api, call, capture_of, device_context, relaxed_capture

ALIGNMENT = 256
"""Alignment of the sums, in bytes."""

COUNTER_BYTES = 4

PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD: a handle that means a different stream in each thread."""

Key: TypeAlias = tuple[int, int, int, int]
"""Device, stream, capture, and thread. The thread is 0 unless the stream is `PER_THREAD_STREAM`."""


class Workspace(NamedTuple):
    """A workspace.

    sums, counters: addresses.
    nbytes: bytes of the sums.
    room: number of counters of 4 bytes.
    """

    sums: int
    counters: int
    nbytes: int
    room: int


def workspace(ordinal: int, stream: int, nbytes: int, count: int) -> Workspace:
    """The workspace for launches on `stream` of a device. It has at least `nbytes` bytes of sums and `count` counters.

    Each stream has a separate workspace. Each capture also has one, because its graph can be replayed on another
    stream. This can be called while a stream is being captured.
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
    """A stream that waits for no other stream. The default stream must not be used while another stream is being
    captured.
    """
    return call(
        "cuStreamCreate", api().CUstream_flags.CU_STREAM_NON_BLOCKING, doing=f"making a stream on device {ordinal}"
    )


@functools.cache
def _held() -> dict[Key, Workspace]:
    return {}


@functools.cache
def _lock() -> threading.Lock:
    return threading.Lock()
