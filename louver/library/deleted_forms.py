"""Memory of deleted forms: freed when no kernel on any stream reads it."""

from __future__ import annotations

import functools

from louver.runtime.adapters import kind_for
from louver.runtime.driver import DriverError, DriverMissingError, device_context, is_capturing
from louver.runtime.memory import wait_for_device


def give_back(ordinal: int, *memory: object) -> None:
    """Free the memory of deleted forms, this memory too, once no kernel on any stream reads it.

    A wait would invalidate a capture of the default stream or of PyTorch's current stream. During such a capture, or if
    the wait fails, nothing is freed. A later call frees the memory.
    """
    _kept().update(((ordinal, object()), each) for each in memory)
    # Between any two statements a garbage collection may add entries, and another thread may remove some.
    released = [key for key in list(_kept()) if key[0] == ordinal]
    if not released:
        return
    try:
        with device_context(ordinal):
            if is_capturing(0) or is_capturing(kind_for(ordinal)[1]):
                return
        wait_for_device(ordinal, "waiting for the products of a sparse tensor")
    except DriverError:
        return
    except DriverMissingError:
        # Without a driver, no kernel was ever launched.
        pass
    for key in released:
        _kept().pop(key, None)


@functools.cache
def _kept() -> dict[tuple[int, object], object]:
    """Memory of deleted forms, by device ordinal and a unique key."""
    return {}
