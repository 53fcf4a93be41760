"""Global memory: NumPy arrays at invented addresses, with gaps so that every stray access is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.emulator.errors import MisalignedError, OutOfBoundsError, UninitialisedError
from louver.emulator.masks import all_zero, every
from louver.isa.instruction import Bits
from louver.isa.machine import U8, Mask

FIRST_ADDRESS = 0x7000_0000_0000
"""First global address, far above all shared and parameter addresses."""

REDZONE = 1 << 16
"""Least distance between two allocations, in bytes."""

BASE_ALIGNMENT = 256
"""Alignment of an allocation in bytes, as from the driver."""


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """An array in emulated global memory. The kernel writes to `array` itself.

    name: shown in errors. address: of the first byte. array: C-contiguous. data: its bytes, uint8 [size]. initialised:
    bool [size], or None if the whole array is. writable: False makes stores an error. settled: no grid that may still
    run writes it. scratch: its bytes after a run are no result.
    """

    name: str
    address: int
    array: NDArray[Any]
    data: U8
    initialised: Mask | None
    writable: bool
    settled: bool
    scratch: bool = False

    @property
    def size(self) -> int:
        """Bytes."""
        return self.data.size


class Saved(NamedTuple):
    """The bytes of an allocation at one time. initialised: as in `Allocation`."""

    allocation: Allocation
    data: U8
    initialised: Mask | None


Check: TypeAlias = Callable[[Allocation, NDArray[np.int64], NDArray[np.int64]], None]
StoreCheck: TypeAlias = Callable[[Allocation, NDArray[np.int64], NDArray[np.int64], U8], None]
"""Checks an access: allocation, byte offsets [lanes, size], lane numbers."""


class GlobalMemory:
    """The allocations that one or more runs share.

    `add` registers an array. Pass the allocation, or its `address` plus an offset, as a pointer argument to `run`.
    """

    def __init__(self) -> None:
        self._allocations: list[Allocation] = []
        self._next = FIRST_ADDRESS

    def add(
        self,
        name: str,
        array: NDArray[Any],
        *,
        offset: int = 0,
        initialised: bool = True,
        writable: bool = True,
        settled: bool = False,
        scratch: bool = False,
    ) -> Allocation:
        """Register `array` without a copy.

        array: C-contiguous, any dtype. offset: bytes added to the 256-byte aligned base, to emulate unaligned views.
        initialised: if False, reads of bytes that the kernel has not written are errors. settled: a dependent launch
        may read it while earlier grids still run. scratch: its bytes after a run are no result. Raises ValueError for
        an array that is not contiguous, or is read-only while `writable`.
        """
        if not array.flags.c_contiguous:
            raise ValueError(
                f"{name}: the array must be C-contiguous, got strides {array.strides}: pass the whole buffer"
            )
        if writable and not array.flags.writeable:
            raise ValueError(f"{name}: the array is read-only; pass writable=False for an input")
        data = array.reshape(-1).view(np.uint8)
        shadow = None if initialised else np.zeros(data.size, np.bool_)
        allocation = Allocation(name, self._next + offset, array, data, shadow, writable, settled, scratch)
        self._allocations.append(allocation)
        step = offset + data.size + REDZONE
        self._next += (step + BASE_ALIGNMENT - 1) // BASE_ALIGNMENT * BASE_ALIGNMENT
        return allocation

    def saved(self) -> list[Saved]:
        """The bytes of all writable arrays, and which of them were written."""
        written = (each for each in self._allocations if each.writable)
        return [
            Saved(each, each.data.copy(), None if each.initialised is None else each.initialised.copy())
            for each in written
        ]

    @staticmethod
    def restore(saved: Iterable[Saved]) -> None:
        for each in saved:
            each.allocation.data[...] = each.data
            if each.allocation.initialised is not None and each.initialised is not None:
                each.allocation.initialised[...] = each.initialised

    @staticmethod
    def check_equal(saved: Iterable[Saved]) -> None:
        """Raise UninitialisedError unless the arrays, except scratch, have these bytes."""
        for each in saved:
            differs = each.allocation.data != each.data
            if not each.allocation.scratch and differs.any():
                raise UninitialisedError(
                    f"byte {int(differs.argmax())} of {each.allocation.name} ({int(differs.sum())} such bytes) depends on "
                    "columns of B that a wgmma reads in shared memory but that were never written"
                )

    def find(self, first: int, last: int) -> Allocation:
        """The allocation that holds bytes `first` to `last`, both included. Raises OutOfBoundsError."""
        for allocation in self._allocations:
            if allocation.address <= first and last < allocation.address + allocation.size:
                return allocation
        raise OutOfBoundsError(f"global bytes {first:#x} to {last:#x} are {self._whereabouts(first, last)}")

    def _whereabouts(self, first: int, last: int) -> str:
        for allocation in self._allocations:
            start, end = allocation.address, allocation.address + allocation.size
            if start - REDZONE < last and first < end + REDZONE // 2:
                where = (
                    f"{first - end} bytes past the end" if first >= start else f"{start - first} bytes before the start"
                )
                return f"outside {allocation.name} ({allocation.size} bytes): {where}"
        return "in no allocation"

    def read(self, address: int, size: int) -> U8:
        """A copy of `size` bytes in one allocation: uint8 [size]."""
        allocation = self.find(address, address + size - 1)
        offset = address - allocation.address
        if allocation.initialised is not None and not every(allocation.initialised[offset : offset + size]):
            raise UninitialisedError(f"a bulk copy reads bytes of {allocation.name} that were never written")
        return allocation.data[offset : offset + size].copy()

    def gather(self, address: Bits, size: int, active: Mask, check: Check | None = None, *, aligned: bool = True) -> U8:
        """Load `size` bytes for each active lane: uint8 [32, size], zeros elsewhere. aligned: check alignment."""
        out = np.zeros((len(address), size), np.uint8)
        for lanes, allocation, offsets in self._resolve(address, size, active, aligned=aligned):
            index = _bytes(offsets, size)
            if check is not None:
                check(allocation, index, lanes)
            if allocation.initialised is not None and not every(allocation.initialised[index]):
                bad = int(index[~allocation.initialised[index]].min())
                raise UninitialisedError(f"byte {bad} of {allocation.name} is read but was never written")
            out[lanes] = allocation.data[index]
        return out

    def scatter(self, address: Bits, data: U8, active: Mask, check: StoreCheck | None = None) -> None:
        """Store uint8 [32, size] for each active lane, in lane order. check: gets the bytes to store too."""
        size = data.shape[1]
        for lanes, allocation, offsets in self._resolve(address, size, active):
            check_writable(allocation)
            index = _bytes(offsets, size)
            if check is not None:
                check(allocation, index, lanes, data[lanes])
            allocation.data[index] = data[lanes]
            if allocation.initialised is not None:
                allocation.initialised[index] = True

    def _resolve(
        self, address: Bits, size: int, active: Mask, *, aligned: bool = True
    ) -> list[tuple[NDArray[np.int64], Allocation, NDArray[np.int64]]]:
        """(lanes, allocation, byte offsets) for each allocation that the active lanes use."""
        lanes = active.nonzero()[0]
        wanted = address[lanes].astype(np.int64)
        if aligned and not all_zero(wanted % size):
            bad = int(wanted[wanted % size != 0][0])
            raise MisalignedError(f"a {size}-byte access needs a multiple of {size}, got global address {bad:#x}")
        found: list[tuple[NDArray[np.int64], Allocation, NDArray[np.int64]]] = []
        while lanes.size:
            allocation = self.find(int(wanted[0]), int(wanted[0]) + size - 1)
            offsets = wanted - allocation.address
            inside = (offsets >= 0) & (offsets + size <= allocation.size)
            if every(inside):
                return [*found, (lanes, allocation, offsets)]
            found.append((lanes[inside], allocation, offsets[inside]))
            lanes, wanted = lanes[~inside], wanted[~inside]
        return found


def check_writable(allocation: Allocation) -> None:
    """Raise OutOfBoundsError if `allocation` is an input."""
    if not allocation.writable:
        raise OutOfBoundsError(f"{allocation.name} is an input of this kernel and must not be written")


def _bytes(offsets: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return offsets[:, None] + np.arange(size)
