"""Streaming kernels on the emulator, with arrays of any strides, offsets and pitches."""

from __future__ import annotations

import ctypes
import functools
from math import prod
from typing import Any

import numpy as np

from louver.emulator import GlobalMemory, Latest, Order, run
from louver.emulator.memory import Allocation
from louver.formats.codes import index_bytes
from louver.formats.dtypes import element_type
from louver.formats.pattern import Pattern
from louver.isa.metadata import prepacked_shape
from louver.library.streaming.derived.record import Derived
from louver.library.streaming.launch import Launch, build
from louver.library.streaming.launches import COUNTER_BYTES, Stored
from louver.library.streaming.place import Record
from louver.library.streaming.record import Streaming
from louver.ptx.module import Kernel
from louver.runtime.arrays import ArrayView

Array = np.ndarray[Any, np.dtype[Any]]

POISON = 0xA5


@functools.lru_cache(maxsize=256)
def built(record: Record) -> Kernel:
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
        """Counters of a kernel."""
        data = np.zeros(count, np.uint64)
        return self.memory.add("counters", data).address, data

    def stored(
        self,
        rows: int,
        size: int,
        pattern: Pattern,
        bits: int,
        *,
        lists: int | None = None,
        pitch: int = 0,
        offset: int = 0,
    ) -> tuple[Stored, Array, Array]:
        """Room for a sparse tensor: values as bytes [rows, pitch], and indices, in as many lists as rows unless told otherwise.

        offset: bytes of misalignment of the indices.
        """
        groups = pattern.groups(size)
        pitch += -(-groups * pattern.n * bits // 8 // 16) * 16
        values, held = self.poisoned(rows * pitch)
        per_row = index_bytes(pattern, groups)
        lists = rows if lists is None else lists
        indices, codes = self.poisoned(lists * per_row, offset=offset)
        return Stored(values, pitch, indices), held.reshape(rows, pitch), codes.reshape(lists, per_row)

    def run(self, launch: Launch, *, order: Order | None = None, kernel: Kernel | None = None) -> None:
        """Run a launch to its end, each CTA with all tiles below each other. kernel: instead of the launch's."""
        if launch.record is not None:
            kernel = kernel or built(launch.record)
            run(kernel, launch.grid(sms=0), launch.arguments, memory=self.memory, order=order or Latest())


def run_in_place(record: Record, grid: tuple[int, int, int], arguments: dict[str, int]) -> None:
    """Run a kernel on arrays that are in the process's memory, at these addresses."""
    memory = GlobalMemory()
    for name, nbytes in _extents(record, arguments).items():
        data = np.frombuffer((ctypes.c_char * nbytes).from_address(arguments[name]), np.uint8)
        memory._allocations.append(Allocation(name, arguments[name], data, data, None, writable=True, settled=False))
    run(built(record), grid, arguments, memory=memory)


def _extents(record: Record, a: dict[str, int]) -> dict[str, int]:
    """Bytes of each array of a launch, by the parameter that has its address."""
    rows, size, pattern = a["rows"], a["size"], record.pattern
    if isinstance(record, Derived):
        found = {"out": 4 * rows * size}
        if record.kind == "round":
            return found | {"values": (rows - 1) * a["pitch"] + 4 * a["kept"]}
        entries = rows // (a["lists"] if record.kind == "list" else 4 * a["blocks"] * a["steps"])
        return found | {"indices": entries * a["windows"] * a["list_bytes"], "counters": COUNTER_BYTES}
    entries = a["tiles"] // a["row_tiles"]
    found: dict[str, int] = {}
    for name in ("source", "out"):
        if name in a:
            steps = (entries, a[f"{name}_entry"]), (rows, a[f"{name}_row"]), (size, a[f"{name}_column"])
            found[name] = sum((count - 1) * step for count, step in steps) + record.type.bytes
    for prefix, count, along in (("", rows, size), ("turned_", size, rows)):
        lists = -(-count // pattern.length)
        if f"{prefix}values" in a:
            found[f"{prefix}values"] = entries * count * a[f"{prefix}pitch"]
        if f"{prefix}indices" in a:
            found[f"{prefix}indices"] = entries * lists * index_bytes(pattern, pattern.groups(along))
    if isinstance(record, Streaming) and record.words is not None:
        per_word = 16 * pattern.m
        whole = entries * -(-rows // 16) * -(-size // per_word) * 128
        found["words"] = (
            whole
            if record.words == "rows"
            else entries
            * 4
            * prod(prepacked_shape(rows, size, "tf32" if record.element == "f32" else record.stored_type))
        )
    if isinstance(record, Streaming) and record.scaling in ("array", "rows"):
        found["scale"] = 4 * (entries * rows if record.scaling == "rows" else 1)
    if "counters" in a:
        found["counters"] = 8 * (3 + pattern.m) if record.kind == "check" else COUNTER_BYTES
    return found
