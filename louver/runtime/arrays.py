"""Arrays of all libraries as one record. `view(x)` makes the record without a copy, and imports no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType

Kind = Literal["numpy", "torch", "cupy", "louver", "other"]
"""The library of an array. `empty_like_kind` makes an array of the same kind."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The memory and layout of an array. A view copies nothing, and keeps the array alive.

    element: element type.
    shape: elements along each dimension; 0 is allowed.
    strides: elements between neighbours along each dimension. 0 repeats an element. Strides of device arrays are not
        negative.
    address: address of element 0 in bytes, a multiple of the element's size.
    device: the CUDA ordinal; None for host memory.
    owner: keeps the memory alive.
    kind: library of the array.
    stream: the CUstream handle of the library's current stream, 0 for the default stream; None for host memory.
    names_stream: whether the library names its stream. If not, `stream` is the default stream.
    host: the same elements as a NumPy array; None for device memory.
    writable: whether each element can be written, without changing another.
    """

    element: ElementType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    device: int | None
    owner: Any
    kind: Kind
    stream: int | None = None
    host: NDArray[Any] | None = None
    writable: bool = True
    names_stream: bool = True

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.strides):
            raise ValueError(f"an array of shape {self.shape} needs one stride for each dimension, got {self.strides}")
        if (self.device is None) != (self.host is not None):
            raise ValueError("an array is either in host memory, with its NumPy view, or on a device")
        if self.device is not None:
            for stride in self.strides:
                if stride < 0:
                    raise ValueError(
                        f"device arrays cannot have negative strides, got {self.strides}: copy the array first"
                    )
            if self.address % self.element.bytes:
                raise ValueError(
                    f"an array of {self.element} is aligned to {self.element.bytes} bytes, got address {self.address:#x}"
                )

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def byte_range(self) -> tuple[int, int]:
        """The address of the first byte of all elements, and that after the last byte. Both are `address` if there are
        no elements.
        """
        if 0 in self.shape:
            return self.address, self.address
        first = last = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            first += min(0, (size - 1) * stride)
            last += max(0, (size - 1) * stride)
        width = self.element.bytes
        return self.address + first * width, self.address + (last + 1) * width

    def to_numpy(self) -> NDArray[Any]:
        """The elements in host memory: a host array itself, or a copy of a device array after its stream's work."""
        if self.host is not None:
            return self.host
        from louver.runtime.memory import read_bytes

        first, last = self.byte_range
        data = read_bytes(first, last - first, ordinal=self.device or 0, stream=self.stream or 0)
        strides = tuple(stride * self.element.bytes for stride in self.strides)
        return np.ndarray(self.shape, self.element.numpy, buffer=data, strides=strides)


def view(x: Any) -> ArrayView:
    """The `ArrayView` of an array.

    x: a NumPy array; a torch tensor on the CPU or a CUDA device; an object with `__cuda_array_interface__` or
        `__dlpack__`; Louver's DeviceArray; or an ArrayView.

    Host memory stays on the host. Raises TypeError if `x` is not an array, ValueError for a masked array, and for an
    element type or layout that Louver does not support.
    """
    from louver.runtime import adapters

    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "all elements of an array must have values, got a masked array: fill the masked elements first, "
            "with filled(…)"
        )

    return x if isinstance(x, ArrayView) else adapters.adapt(x)


def empty_like_kind(like: ArrayView, shape: Sequence[int], element: ElementType) -> Any:
    """A new row-major array with undefined contents, of the library, on the device and in the stream order of `like`.

    PyTorch, NumPy, and CuPy (for NumPy's built-in element types) make the array. For all other kinds it is a NumPy
    array on the host, and a `DeviceArray` on a device, which other libraries adopt by `__cuda_array_interface__`.
    """
    from louver.runtime import adapters

    return adapters.empty(like, tuple(shape), element)


def overlaps(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays of any shapes and strides share a byte. Exact, except that cases that take too long count as
    True.
    """
    if a.device != b.device:
        return False
    try:
        return np.shares_memory(_phantom(a), _phantom(b), max_work=_MAX_WORK)
    except _TOO_HARD:
        return True


def repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices of an array with these strides (elements) are the same element. Exact in the sense of
    `overlaps`.
    """
    if 0 in shape:
        return False
    try:
        x = _at(_ANYWHERE, tuple(shape), tuple(strides), 1)
        while x.ndim:
            # Pairs of indices whose first difference is along this axis. The lower index is shifted to 0.
            if np.shares_memory(x[:1], x[1:], max_work=_MAX_WORK):
                return True
            # x[0] of the last axis would be a scalar, which reads memory. x[0, ...] is an array.
            x = x[0, ...]
    except _TOO_HARD:
        return True
    return False


_ANYWHERE: Final = 1 << 61
"""An address with room before and after it."""

_MAX_WORK: Any = 1_000_000
"""Limit of work for NumPy's solver, a few milliseconds. The problem is NP-hard, but only contrived strides reach the
limit.
"""

_TOO_HARD: Final = (np.exceptions.TooHardError, OverflowError, ValueError)
"""NumPy's errors at this limit, and for arrays with more elements than there are addresses."""


def _phantom(x: ArrayView) -> NDArray[Any]:
    """An array at the address of `x`, on which NumPy computes overlaps. Its elements are never read."""
    return _at(x.address, x.shape, x.strides, x.element.bytes)


def _at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> NDArray[Any]:
    pitches = tuple(stride * width for stride in strides)
    described = {"version": 3, "data": (address, True), "shape": shape, "strides": pitches, "typestr": f"|V{width}"}
    return np.asarray(SimpleNamespace(__array_interface__=described))
