"""Reads the shared memory of warpgroup products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.swizzle import CHUNK

Shared: TypeAlias = NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
"""Shared memory of a CTA: its bytes, or a function from byte addresses to bytes of the same shape."""


def read(shared: Shared, chunks: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Bytes of 16-byte chunks, uint8 [lines, 16 * count], from their addresses, int64 [lines, count]."""
    addresses = chunks[:, :, None] + np.arange(CHUNK)
    if callable(shared):
        data = shared(addresses)
    else:
        last = int(chunks.max()) + CHUNK
        if last > shared.size:
            raise ValueError(f"a product reads shared memory up to byte {last}, got a window of {shared.size} bytes")
        data = shared[addresses]
    return np.ascontiguousarray(data).reshape(chunks.shape[0], -1)
