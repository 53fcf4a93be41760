"""Times on the device: events in a stream, and the time between two of them."""

from __future__ import annotations

from typing import Any

from louver.runtime.driver import call, device_context


class Event:
    """A point in a stream's work, with the time when it was reached; released by `close`. ordinal: the stream's device."""

    __slots__ = ("_handle", "ordinal")

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        with device_context(ordinal):
            self._handle: Any = call("cuEventCreate", 0, doing="creating an event")

    def record(self, stream: int) -> None:
        """Put it behind all that was sent to `stream` (a CUstream handle) so far."""
        with device_context(self.ordinal):
            call("cuEventRecord", self._handle, stream, doing="recording an event")

    def seconds_until(self, later: Event) -> float:
        """From this event to a later one, for which it waits; about half a microsecond exact."""
        with device_context(self.ordinal):
            call("cuEventSynchronize", later._handle, doing="waiting for an event")
            return float(call("cuEventElapsedTime", self._handle, later._handle, doing="timing")) * 1e-3

    def close(self) -> None:
        """Release it."""
        with device_context(self.ordinal):
            call("cuEventDestroy", self._handle, doing="releasing an event")
