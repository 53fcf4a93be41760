"""Streaming kernels on the emulator, with arrays of any strides, offsets and pitches."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from louver.emulator import GlobalMemory, Latest, Order, run
from louver.formats.codes import index_bytes
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.library.streaming.launches import Launch, Stored, build
from louver.ptx.module import Kernel
from louver.runtime.arrays import ArrayView

Array = np.ndarray[Any, np.dtype[Any]]

SMS = 1
"""Of the emulated device: few, so that a CTA takes several tiles."""

POISON = 0xA5


@functools.lru_cache(maxsize=256)
def built(record: Any) -> Kernel:
    """A kernel, built once."""
    return build(record)


class Device:
    """The emulated device's memory."""

    def __init__(self) -> None:
        self.memory = GlobalMemory()

    def place(self, array: Array, *, offset: int = 0, writable: bool = False) -> ArrayView:
        """A view of a host array, of any strides: its whole buffer lies on the device. offset: bytes of misalignment."""
        whole: Any = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        data = np.ascontiguousarray(whole).reshape(-1).view(np.uint8) if not whole.flags.c_contiguous else whole
        allocation = self.memory.add("array", data, offset=offset, writable=writable)
        start = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
        element = element_type(array.dtype)
        return ArrayView(
            element=element,
            shape=array.shape,
            strides=tuple(stride // element.bytes for stride in array.strides),
            address=allocation.address + start,
            device=0,
            owner=None,
            kind="other",
            stream=0,
        )

    def poisoned(self, nbytes: int, *, offset: int = 0) -> tuple[int, Array]:
        """Bytes that a kernel writes: their address, and what is there."""
        data = np.full(max(nbytes, 1), POISON, np.uint8)
        return self.memory.add("out", data, offset=offset).address, data

    def counters(self, count: int = 2) -> tuple[int, Array]:
        """Counters as kernels need them."""
        data = np.zeros(count, np.uint64)
        if count > 2:
            data[2] = ~np.uint64(0)
        return self.memory.add("counters", data).address, data

    def stored(
        self, rows: int, size: int, pattern: Pattern, bits: int, *, pitch: int = 0, offset: int = 0
    ) -> tuple[Stored, Array, Array]:
        """Room for a sparse tensor: values as bytes [rows, pitch], and indices. offset: bytes of misalignment of the indices."""
        groups = pattern.groups(size)
        pitch += -(-groups * pattern.n * bits // 8 // 16) * 16
        values, held = self.poisoned(rows * pitch)
        per_row = index_bytes(pattern, groups)
        indices, codes = self.poisoned(rows * per_row, offset=offset)
        return Stored(values, pitch, indices), held.reshape(rows, pitch), codes.reshape(rows, per_row)

    def run(self, launch: Launch, *, order: Order | None = None) -> None:
        """Run a launch to its end."""
        if launch.record is not None:
            run(built(launch.record), launch.grid(SMS), launch.arguments, memory=self.memory, order=order or Latest())
