"""Where operations go as they are made."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.ir import Block, Region

_ONE_THREAD: Final = threading.RLock()


@contextmanager
def building(place: Builder | Block | Region) -> Generator[None]:
    """Puts operations that this thread makes at a place: before an operation, or at the end of a block or region.

    xDSL replaces a method of all operations meanwhile, and puts back what it found. So one thread at a time builds.
    """
    with _ONE_THREAD, ImplicitBuilder(place):
        yield
