"""Tiled bulk copies: a tensor map's box in global memory, and its place in shared memory.

Source: PTX ISA, "Tensors" (tiled mode, out-of-bound access, swizzling modes); CUDA driver API, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from louver.emulator.errors import LaunchError, MisalignedError, OutOfBoundsError, UninitialisedError
from louver.emulator.memory import Allocation, GlobalMemory, check_writable
from louver.emulator.shared import Where
from louver.formats.dtypes import element_type
from louver.isa.bulk import COPY_CHUNK, SwizzleBytes, TensorMap
from louver.isa.machine import U8
from louver.isa.swizzle import CHUNK, Swizzle

TILE_ALIGNMENT = 128
"""Alignment of a tiled copy's shared address, in bytes."""

Item = TypeVar("Item", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor map with the allocation that it describes."""

    map: TensorMap
    allocation: Allocation

    @classmethod
    def bind(cls, tensor_map: TensorMap, memory: GlobalMemory) -> Tensor:
        """Find the allocation. Raises LaunchError if the tensor does not begin in one.

        The hardware does not know where an array ends. The tensor may reach beyond it, boxes may not.
        """
        try:
            return cls(tensor_map, memory.find(tensor_map.address, tensor_map.address))
        except OutOfBoundsError as error:
            raise LaunchError(f"the tensor map {tensor_map} begins in no array: {error.problem}") from None

    def load(self, coordinates: Sequence[int]) -> U8:
        """The box at `coordinates` (innermost first): uint8 [box_bytes], not swizzled, zeros outside the tensor."""
        box = np.zeros((*self.map.box[::-1], self.map.element_bytes), np.uint8)
        inside, box_slices = self._clip(self.allocation.data, coordinates)
        if inside is not None:
            if self.allocation.initialised is not None:
                shadow = self.part(self.allocation.initialised, coordinates)
                if shadow is not None and not shadow.all():
                    raise UninitialisedError(
                        f"a bulk copy reads bytes of {self.allocation.name} that were never written, "
                        f"in the box at {tuple(coordinates)}"
                    )
            box[box_slices] = inside
        return box.reshape(-1)

    def store(self, coordinates: Sequence[int], data: U8) -> None:
        """Write the box at `coordinates`, except elements outside the tensor. data: uint8 [box_bytes]."""
        inside, box_slices = self._clip(self.allocation.data, coordinates)
        if inside is None:
            return
        inside[...] = data.reshape(*self.map.box[::-1], self.map.element_bytes)[box_slices]
        if self.allocation.initialised is not None:
            shadow = self.part(self.allocation.initialised, coordinates)
            if shadow is not None:
                shadow[...] = True

    def add(self, coordinates: Sequence[int], data: U8) -> None:
        """Add the box to the tensor at `coordinates`, except elements outside. data: uint8 [box_bytes]."""
        if self.map.adds is None:
            raise LaunchError(f"a bulk copy that adds needs a tensor map with an element type to add, got {self.map}")
        dtype = element_type(self.map.adds).numpy
        before = self.load(coordinates)
        with np.errstate(over="ignore", invalid="ignore"):
            total = before.view(dtype) + np.ascontiguousarray(data).view(dtype)
        self.store(coordinates, total.astype(dtype).view(np.uint8))

    def check_store(self, coordinates: Sequence[int]) -> None:
        """Raise MisalignedError or OutOfBoundsError if the hardware would not store exactly the box."""
        check_writable(self.allocation)
        self.check_load(coordinates)
        self._check_end(coordinates)

    def check_load(self, coordinates: Sequence[int]) -> None:
        """Raise MisalignedError if the hardware would not load the box at `coordinates`."""
        if coordinates[0] * self.map.element_bytes % COPY_CHUNK:
            raise MisalignedError(
                f"a tiled copy starts at a multiple of {COPY_CHUNK} bytes along the innermost dimension, "
                f"got coordinate {coordinates[0]} of {self.map.element_bytes}-byte elements: "
                f"the hardware stops with an illegal instruction"
            )

    def _check_end(self, coordinates: Sequence[int]) -> None:
        inner = self.map.shape[0]
        if coordinates[0] + self.map.box[0] <= inner or inner * self.map.element_bytes % COPY_CHUNK == 0:
            return
        if self.part(self.allocation.data, coordinates) is not None:
            raise OutOfBoundsError(
                f"a tiled store writes whole chunks of {COPY_CHUNK} bytes, got {self.allocation.name} with an innermost "
                f"dimension of {inner} elements of {self.map.element_bytes} bytes, which it would write past: "
                f"store such rows element by element"
            )

    def part(self, plane: NDArray[Item], coordinates: Sequence[int]) -> NDArray[Item] | None:
        """A view of the box inside the tensor, in a plane with one item for each byte of the allocation."""
        return self._clip(plane, coordinates)[0]

    def _clip(self, data: NDArray[Item], coordinates: Sequence[int]) -> tuple[NDArray[Item] | None, tuple[slice, ...]]:
        """(strided view of the box's part inside the tensor, its place in the box), outermost first."""
        start = self.map.address - self.allocation.address
        sizes: list[int] = []
        slices: list[slice] = []
        strides = (self.map.element_bytes, *self.map.strides)
        for c, box, size, stride in zip(coordinates, self.map.box, self.map.shape, strides, strict=True):
            low, high = max(c, 0), min(c + box, size)
            if low >= high:
                return None, ()
            start += low * stride
            sizes.append(high - low)
            slices.append(slice(low - c, high - c))
        held, step = self.allocation.size, data.itemsize
        end = start + self.map.element_bytes + sum((n - 1) * by for n, by in zip(sizes, strides, strict=True))
        if end > held:
            raise OutOfBoundsError(
                f"the box at {tuple(coordinates)} of {self.map} leaves {self.allocation.name} ({held} bytes): "
                f"{end - held} bytes past the end"
            )
        view = as_strided(
            data[start:],
            (*sizes[::-1], self.map.element_bytes),
            [step * stride for stride in (*strides[::-1], 1)],
            writeable=data.flags.writeable,
        )
        return view, tuple(slices[::-1])


def signed_coordinates(coordinates: Sequence[int]) -> tuple[int, ...]:
    """Coordinates as signed 32-bit numbers, from the bits of registers."""
    return tuple((c & 0xFFFFFFFF) - ((c & 0x80000000) << 1) for c in coordinates)


def tile_bytes(tensor_map: TensorMap, address: int) -> Where:
    """Place in shared memory of byte i of the (unswizzled) box, for a tile at `address`. Raises MisalignedError.

    A slice without swizzle, else offsets, int64 [box_bytes]. The swizzle uses absolute addresses, as the hardware does.
    """
    if address % TILE_ALIGNMENT:
        raise MisalignedError(f"a tiled copy needs a shared address that is a multiple of 128, got {address:#x}")
    if not tensor_map.swizzle:
        return slice(address, address + tensor_map.box_bytes)
    return _swizzled(tensor_map.swizzle, address % 1024, tensor_map.box_bytes) + (address - address % 1024)


@lru_cache(maxsize=256)
def _swizzled(span: SwizzleBytes, phase: int, size: int) -> NDArray[np.int64]:
    chunks = phase + np.arange(0, size, CHUNK, dtype=np.int64)
    places = np.asarray(Swizzle(span).apply(chunks), np.int64)
    return (places[:, None] + np.arange(CHUNK)).reshape(-1)[:size]
