"""Arrays of any library as one record: `view(x)` adapts, without importing the library and without copying."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from louver.formats.dtypes import ElementType

Kind = Literal["numpy", "torch", "cupy", "louver", "other"]
"""Whose array it is; decides what `empty_like_kind` makes."""


@dataclass(frozen=True, slots=True)
class ArrayView:
    """Where an array's elements are. It copies nothing and keeps the array alive.

    element: its type. shape: elements, each at least 1. strides: elements between neighbours along each dimension; 0
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
            raise ValueError(f"an array of shape {self.shape} has as many strides, got {self.strides}")
        for size in self.shape:
            if size < 1:
                raise ValueError(f"each dimension has at least 1 element, got shape {self.shape}: skip empty arrays")
        if (self.device is None) != (self.host is not None):
            raise ValueError("an array is either in host memory, with its NumPy view, or on a device")
        if self.device is not None:
            for stride in self.strides:
                if stride < 0:
                    raise ValueError(
                        f"device arrays have no negative strides, got {self.strides}: copy the array first"
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
        """The addresses of the first byte and behind the last byte that an element covers."""
        first = last = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            first += min(0, (size - 1) * stride)
            last += max(0, (size - 1) * stride)
        width = self.element.bytes
        return self.address + first * width, self.address + (last + 1) * width

    def to_numpy(self, *, stream: int | None = None) -> NDArray[Any]:
        """The elements in host memory: the array itself on the host, a copy of a device array after its stream's work."""
        if self.host is not None:
            return self.host
        from louver.runtime.memory import read_bytes

        first, last = self.byte_range
        on = stream if stream is not None else self.stream or 0
        data = read_bytes(first, last - first, ordinal=self.device or 0, stream=on)
        strides = tuple(stride * self.element.bytes for stride in self.strides)
        return np.ndarray(self.shape, self.element.numpy, buffer=data, strides=strides)


def view(x: Any) -> ArrayView:
    """The `ArrayView` of an array.

    x: a NumPy array; a torch tensor on the CPU or a CUDA device; anything with `__cuda_array_interface__` or
    `__dlpack__`; Louver's own DeviceArray; or an ArrayView. Host memory stays where it is.
    Raises TypeError for what is no array, ValueError for an element type, layout or size that Louver cannot take.
    """
    from louver.runtime import adapters

    return x if isinstance(x, ArrayView) else adapters.adapt(x)


def empty_like_kind(like: ArrayView, shape: Sequence[int], element: ElementType) -> Any:
    """A new row-major array of undefined contents: of the library, on the device and in the stream order of `like`.

    torch gives a tensor, NumPy an array, CuPy an array for element types that NumPy itself has. For others on a device
    it is a `DeviceArray`, which they adopt by `__cuda_array_interface__`; on the host it is a NumPy array.
    """
    from louver.runtime import adapters

    return adapters.empty(like, tuple(shape), element)


def overlaps(a: ArrayView, b: ArrayView) -> bool:
    """Whether writing one may change the other: exact for disjoint ranges and for parts of one array, else True.

    Parts of one array: both have a stride in common, a pitch of which their larger strides are multiples, and what the smaller
    strides reach lies within a pitch, at different places of it. Columns of a matrix, rows of a batch, heads of tokens.
    """
    if a.device != b.device:
        return False
    a_first, a_last = a.byte_range
    b_first, b_last = b.byte_range
    if a_last <= b_first or b_last <= a_first:
        return False
    return not any(_apart(a, b, b_first - a_first, pitch) for pitch in _steps(a).keys() & _steps(b).keys())


def _apart(a: ArrayView, b: ArrayView, distance: int, pitch: int) -> bool:
    """Whether what both reach modulo `pitch` (bytes) are intervals that do not meet around the circle."""
    a_row, b_row = _within(a, pitch), _within(b, pitch)
    if a_row is None or b_row is None:
        return False
    distance %= pitch
    return distance >= a_row and distance + b_row <= pitch


def _within(x: ArrayView, pitch: int) -> int | None:
    """The extent in bytes of what strides below `pitch` reach; None when a larger one is no multiple of it."""
    extent = x.element.bytes
    for step, reach in _steps(x).items():
        if step < pitch:
            extent += reach
        elif step % pitch:
            return None
    return extent


def _steps(x: ArrayView) -> dict[int, int]:
    """The strides that move, in bytes, each with the distance from its first element to its last."""
    steps: dict[int, int] = {}
    for stride, size in zip(x.strides, x.shape, strict=True):
        if stride and size > 1:
            step = abs(stride) * x.element.bytes
            steps[step] = steps.get(step, 0) + (size - 1) * step
    return steps
