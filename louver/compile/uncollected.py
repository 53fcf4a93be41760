"""Pauses the collection of cycles while a kernel is compiled."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Collect no cycles inside, unless nobody does.

    IR is made of cycles that live until the kernel is compiled. To look for dead ones takes a fifth of the time, and more
    in a process with many other objects.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
