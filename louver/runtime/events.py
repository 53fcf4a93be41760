"""Times on a device: events in a stream, and the time between two events."""

from __future__ import annotations

from typing import Any

from louver.runtime.driver import call, device_context


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
