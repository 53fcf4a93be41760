"""Arrays of any library as one record: `view(x)` adapts, without importing the library and without copying."""

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
"""The owner of an array; `empty_like_kind` makes an array of the same kind."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    """The place of an array's elements. It copies nothing and keeps the array alive.

    element: its type. shape: elements; 0 for an array without any. strides: elements between neighbours along each dimension; 0
    repeats, and a device array has no negative ones. address: bytes, of element 0, a multiple of the element's size.
    device: the CUDA ordinal, None for host memory. owner: keeps the memory alive. kind: whose array it is.
    stream: the CUstream handle that the caller's library works on now, 0 the default stream; None for host memory.
    names_stream: whether the library said so; else nothing is known to work on it, and `stream` is the default stream.
    host: the same elements as a NumPy array, None for device memory. writable: each element may be written on its own.
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
        """Elements."""
        return math.prod(self.shape)

    @property
    def byte_range(self) -> tuple[int, int]:
        """The addresses of the first byte and behind the last byte that an element covers; without elements both are `address`."""
        if 0 in self.shape:
            return self.address, self.address
        first = last = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            first += min(0, (size - 1) * stride)
            last += max(0, (size - 1) * stride)
        width = self.element.bytes
        return self.address + first * width, self.address + (last + 1) * width

    def to_numpy(self) -> NDArray[Any]:
        """The elements in host memory: the array itself on the host, a copy of a device array after its stream's work."""
        if self.host is not None:
            return self.host
        from louver.runtime.memory import read_bytes

        first, last = self.byte_range
        data = read_bytes(first, last - first, ordinal=self.device or 0, stream=self.stream or 0)
        strides = tuple(stride * self.element.bytes for stride in self.strides)
        return np.ndarray(self.shape, self.element.numpy, buffer=data, strides=strides)


def view(x: Any) -> ArrayView:
    """The `ArrayView` of an array.

    x: a NumPy array; a torch tensor on the CPU or a CUDA device; anything with `__cuda_array_interface__` or
    `__dlpack__`; Louver's own DeviceArray; or an ArrayView. Host memory stays where it is.
    Raises TypeError for what is no array, ValueError for an element type or layout that Louver cannot take, and for masks.
    """
    from louver.runtime import adapters

    if isinstance(x, np.ma.MaskedArray):
        raise ValueError(
            "all elements of an array must have values, got a masked array: fill the masked elements first, "
            "with filled(…)"
        )

    return x if isinstance(x, ArrayView) else adapters.adapt(x)


def empty_like_kind(like: ArrayView, shape: Sequence[int], element: ElementType) -> Any:
    """A new row-major array of undefined contents: of the library, on the device and in the stream order of `like`.

    torch gives a tensor, NumPy an array, CuPy an array for element types that NumPy itself has. For others on a device
    it is a `DeviceArray`, which they adopt by `__cuda_array_interface__`; on the host it is a NumPy array.
    """
    from louver.runtime import adapters

    return adapters.empty(like, tuple(shape), element)


def overlaps(a: ArrayView, b: ArrayView) -> bool:
    """Whether two arrays share a byte, of any shapes and strides: exact, but True where it would take too long to know."""
    if a.device != b.device:
        return False
    try:
        return np.shares_memory(_phantom(a), _phantom(b), max_work=_MAX_WORK)
    except _TOO_HARD:
        return True


def repeats(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two indices of an array with these strides (elements) are one element: exact, as `overlaps` is."""
    if 0 in shape:
        return False
    try:
        x = _at(_ANYWHERE, tuple(shape), tuple(strides), 1)
        while x.ndim:
            # Indices that differ along this axis first, the lower one moved to 0.
            if np.shares_memory(x[:1], x[1:], max_work=_MAX_WORK):
                return True
            # An index alone would make a number of the last axis, and read it.
            x = x[0, ...]
    except _TOO_HARD:
        return True
    return False


_ANYWHERE: Final = 1 << 61
"""An address with room before and behind it."""

_MAX_WORK: Any = 1_000_000
"""Of NumPy's solver, a few milliseconds: strides that take longer are made for it, since the problem is NP-hard."""

_TOO_HARD: Final = (np.exceptions.TooHardError, OverflowError, ValueError)
"""NumPy's errors there, and for arrays with more elements than there are addresses."""


def _phantom(x: ArrayView) -> NDArray[Any]:
    """An array where `x` is, for NumPy to reason about; it is never read."""
    return _at(x.address, x.shape, x.strides, x.element.bytes)


def _at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> NDArray[Any]:
    pitches = tuple(stride * width for stride in strides)
    described = {"version": 3, "data": (address, True), "shape": shape, "strides": pitches, "typestr": f"|V{width}"}
    return np.asarray(SimpleNamespace(__array_interface__=described))
