from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def stream() -> Iterator[int]:
    """A stream of its own, which does not wait for the default stream."""
    from louver.runtime.driver import call, device_context

    with device_context(0):
        handle = int(call("cuStreamCreate", 1))
        yield handle
        # Not destroyed: a failed test's traceback keeps buffers that are released on it later.
        call("cuStreamSynchronize", handle)
