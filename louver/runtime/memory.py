"""Device memory that Louver owns: buffers, arrays in buffers, and copies to and from the host."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType, element_type
from louver.runtime.dlpack import CUDA, row_major
from louver.runtime.driver import DriverError, call, capture_of, device_context, relaxed_capture


class DeviceBuffer:
    """Bytes on a device, allocated and freed in the order of a stream.

    address: device pointer, aligned to 256 bytes.
    nbytes: size, at least 1.
    ordinal: the device.
    stream: CUstream handle. Work on this stream may use the buffer at once. Other streams must be ordered after the
        allocation and before the release. The stream must exist as long as the buffer.

    `close` or the end of the object releases the memory. Memory that is allocated during a capture belongs to the
    graph. Other memory is not released during a capture, because the graph would release it at each replay.
    """

    __slots__ = ("_capture", "address", "nbytes", "ordinal", "stream")

    def __init__(self, nbytes: int, *, ordinal: int = 0, stream: int = 0) -> None:
        self.address = 0
        if nbytes < 1:
            raise ValueError(f"a device buffer has at least 1 byte, got {nbytes}")
        self.nbytes = nbytes
        self.ordinal = ordinal
        self.stream = stream
        _release_kept()
        with device_context(ordinal):
            self._capture = capture_of(stream)
            self.address = int(call("cuMemAllocAsync", nbytes, stream, doing=f"allocating {nbytes} bytes"))

    def fill(self, byte: int) -> None:
        """Set every byte to `byte` (0 to 255), in the order of the buffer's stream."""
        if not 0 <= byte <= 255:
            raise ValueError(f"a byte is 0 to 255, got {byte}")
        fill_bytes(self.address, byte, self.nbytes, ordinal=self.ordinal, stream=self.stream)

    def write(self, data: NDArray[Any], *, offset: int = 0) -> None:
        """Copy a C-contiguous host array to `offset` (bytes). When this returns, the array may be changed."""
        self._check(offset, data.nbytes)
        write_bytes(self.address + offset, data, ordinal=self.ordinal, stream=self.stream)

    def read(self, nbytes: int | None = None, *, offset: int = 0) -> NDArray[np.uint8]:
        """`nbytes` bytes from `offset` on (by default all the rest) as uint8, after the stream's work so far."""
        count = self.nbytes - offset if nbytes is None else nbytes
        self._check(offset, count)
        return read_bytes(self.address + offset, count, ordinal=self.ordinal, stream=self.stream)

    def close(self) -> None:
        """Release the memory in the order of the buffer's stream. A second call does nothing."""
        address, self.address = self.address, 0
        if address:
            _release(address, self.ordinal, self.stream, self._capture)

    def __del__(self) -> None:
        # At the end of the process, and after a fault, the driver has already released the memory.
        if self.address and not sys.is_finalizing():
            with contextlib.suppress(DriverError):
                self.close()

    def _check(self, offset: int, nbytes: int) -> None:
        if not self.address:
            raise ValueError("this device buffer is closed")
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"bytes {offset} to {offset + nbytes} lie outside the buffer's {self.nbytes}")


def _release(address: int, ordinal: int, stream: int, capture: int) -> None:
    """Free memory in the order of its stream. While the stream is captured, memory from outside the capture is kept for
    later.

    capture: number of the capture in which the memory was allocated, or 0.
    """
    # Without the relaxed mode, a release would end any capture of the thread.
    with device_context(ordinal), relaxed_capture():
        now = capture_of(stream)
        if now == capture:
            call("cuMemFreeAsync", address, stream, doing="releasing device memory")
        elif not capture:
            _kept()[address] = ordinal, stream


def _release_kept() -> None:
    """Release memory that was kept during captures. Meanwhile, a garbage collection may add entries, and another thread
    may release some.
    """
    for address in list(_kept()):
        place = _kept().pop(address, None)
        # As in `__del__`, an error of the release does not concern the caller.
        with contextlib.suppress(DriverError):
            if place is not None:
                _release(address, *place, capture=0)


@functools.cache
def _kept() -> dict[int, tuple[int, int]]:
    """Device and stream of memory to release, by address."""
    return {}


class DeviceArray:
    """An array in device memory. Louver makes such an array if the library of the inputs cannot make one.

    Other libraries adopt it by `__cuda_array_interface__`, for NumPy's built-in element types. `numpy()` copies it to
    the host.

    buffer: begins with element 0, and contains all elements.
    strides: elements between neighbours along each dimension, by default row-major.

    Raises ValueError if the buffer is too small, or a dimension is below 0.
    """

    __slots__ = ("buffer", "element", "shape", "strides")

    def __init__(
        self,
        buffer: DeviceBuffer,
        shape: Sequence[int],
        element: ElementType,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.buffer = buffer
        self.shape = tuple(shape)
        self.element = element
        self.strides = row_major(self.shape) if strides is None else tuple(strides)
        if min(self.shape, default=1) < 0:
            raise ValueError(f"dimensions are 0 or more, got shape {self.shape}")
        if self._reach > buffer.nbytes:
            raise ValueError(f"shape {self.shape} of {element} needs {self._reach} bytes, got {buffer.nbytes}")

    @classmethod
    def empty(cls, shape: Sequence[int], element: ElementType, *, ordinal: int = 0, stream: int = 0) -> DeviceArray:
        """A row-major array with undefined contents, allocated in the order of `stream`."""
        nbytes = math.prod(shape) * element.bytes
        # The driver does not allocate 0 bytes.
        return cls(DeviceBuffer(max(nbytes, 1), ordinal=ordinal, stream=stream), shape, element)

    @classmethod
    def of(cls, array: NDArray[Any], *, ordinal: int = 0, stream: int = 0) -> DeviceArray:
        """A row-major copy of a host array, of any strides."""
        made = cls.empty(array.shape, element_type(array.dtype), ordinal=ordinal, stream=stream)
        made.buffer.write(np.ascontiguousarray(array))
        return made

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.element.bytes

    @property
    def _reach(self) -> int:
        """Bytes from the start of element 0 to the end of the last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.element.bytes

    def numpy(self) -> NDArray[Any]:
        """A host copy, after the work sent to the buffer's stream so far."""
        return np.ndarray(self.shape, self.element.numpy, self.buffer.read(self._reach), strides=self._pitches)

    @property
    def _pitches(self) -> tuple[int, ...]:
        return tuple(stride * self.element.bytes for stride in self.strides)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The device in the terms of DLPack. Some element types have no name in `__cuda_array_interface__`."""
        return CUDA, self.buffer.ordinal

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.element.numpy.isbuiltin != 1:
            raise AttributeError(f"__cuda_array_interface__ has no name for {self.element}")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.element.numpy.str,
            "data": (self.buffer.address, False),
            "strides": None if self.strides == row_major(self.shape) else self._pitches,
            # In the interface, 1 is the default stream, and 0 is not allowed.
            "stream": self.buffer.stream or 1,
        }


def read_bytes(address: int, nbytes: int, *, ordinal: int, stream: int) -> NDArray[np.uint8]:
    """Device memory as a host array of bytes, after the stream's work so far."""
    out = np.empty(nbytes, np.uint8)
    if not nbytes:
        return out
    with device_context(ordinal):
        call("cuMemcpyDtoHAsync", out.ctypes.data, address, nbytes, stream, doing="copying from the device")
        call("cuStreamSynchronize", stream, doing="copying from the device")
    return out


def write_bytes(address: int, data: NDArray[Any], *, ordinal: int, stream: int) -> None:
    """Copy a C-contiguous host array to device memory. When this returns, the array may be changed."""
    if not data.flags.c_contiguous:
        raise ValueError("only C-contiguous arrays are copied to the device: use np.ascontiguousarray")
    if not data.nbytes:
        return
    with device_context(ordinal):
        call("cuMemcpyHtoDAsync", address, data.ctypes.data, data.nbytes, stream, doing="copying to the device")
        # The driver may read pinned host memory after the copy call has returned.
        call("cuStreamSynchronize", stream, doing="copying to the device")


def fill_bytes(address: int, byte: int, nbytes: int, *, ordinal: int, stream: int) -> None:
    """Set `nbytes` bytes of device memory, at least 1, to a value, in the order of a stream."""
    with device_context(ordinal):
        call("cuMemsetD8Async", address, byte, nbytes, stream, doing="filling device memory")


def wait_for_device(ordinal: int, doing: str) -> None:
    """Return when all work sent to any stream of the device is done."""
    with device_context(ordinal):
        call("cuCtxSynchronize", doing=doing)


def wait_for_stream(ordinal: int, stream: int, doing: str) -> None:
    """Return when all work sent to a stream (a CUstream handle) is done."""
    with device_context(ordinal):
        call("cuStreamSynchronize", stream, doing=doing)
