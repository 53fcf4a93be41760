"""Copies of arrays' contents, so that a trial launch leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from louver.runtime.arrays import ArrayView
from louver.runtime.driver import call, device_context
from louver.runtime.memory import DeviceBuffer
from louver.user.interpreted import flat


class DeviceSnapshot:
    """Copies of arrays on a device, made and restored in stream order. Bytes between a view's elements are included."""

    __slots__ = ("_kept", "_ordinal", "_stream")

    def __init__(self, arrays: Iterable[ArrayView], ordinal: int, stream: int) -> None:
        self._ordinal = ordinal
        self._stream = stream
        self._kept: list[tuple[int, DeviceBuffer]] = []
        for address, nbytes in dict.fromkeys(_extent(array) for array in arrays):
            copy = DeviceBuffer(nbytes, ordinal=ordinal, stream=stream)
            self._copy(copy.address, address, nbytes)
            self._kept.append((address, copy))

    def restore(self) -> None:
        """Restore the arrays' contents. May be called several times."""
        for address, copy in self._kept:
            self._copy(address, copy.address, copy.nbytes)

    def close(self) -> None:
        for _, copy in self._kept:
            copy.close()

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        with device_context(self._ordinal):
            call("cuMemcpyDtoDAsync", to, source, nbytes, self._stream, doing="copying on the device")


class HostSnapshot:
    """Copies of writable arrays in host memory."""

    __slots__ = ("_kept",)

    def __init__(self, arrays: Iterable[ArrayView]) -> None:
        self._kept: list[tuple[NDArray[np.generic], NDArray[np.generic]]] = []
        for array in arrays:
            if array.writable:
                memory = flat(array)
                self._kept.append((memory, memory.copy()))

    def restore(self) -> None:
        for memory, copy in self._kept:
            memory[...] = copy


def zero(name: str, array: ArrayView, ordinal: int, stream: int) -> None:
    """Set an array on a device to zero. Raises ValueError for an array with gaps, unless it is PyTorch's."""
    if array.kind == "torch":
        array.owner.zero_()
        return
    first, nbytes = _extent(array)
    if nbytes != array.size * array.element.bytes:
        raise ValueError(
            f"the argument {name!r} is reset to zero as a whole, got an array with gaps between its elements"
        )
    with device_context(ordinal):
        call("cuMemsetD8Async", first, 0, nbytes, stream, doing="setting an array to zero")


def _extent(array: ArrayView) -> tuple[int, int]:
    """The start of its memory, and its size in bytes."""
    first, last = array.byte_range
    return first, last - first
