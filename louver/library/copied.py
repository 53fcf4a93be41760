"""Copies of dense operands to whole lines, made before each launch of a product.

A product copies its dense operand if tensor maps cannot describe the rows in place, or if copy and product take less
time than the product alone. Rows that do not begin with a line of 128 bytes take longer to copy to shared memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from louver.choose.times import LINE_BYTES
from louver.frontend.problem import BLayout
from louver.library.dense import DenseMatrix, merged
from louver.library.launch import Sendable
from louver.library.rows import Rows, walk_of
from louver.runtime.adapters import DEFAULT_STREAMS, scratch
from louver.runtime.arrays import Kind
from louver.runtime.copy2d import bound_copy, check_copies
from louver.runtime.driver import capture_question
from louver.runtime.known_calls import keep_recent
from louver.runtime.module import BoundLaunch
from louver.runtime.workspace import PER_THREAD_STREAM

RECENT_ROOMS = 8
"""Addresses of copies that are remembered for a launch. An allocator reuses few addresses."""


@dataclass(frozen=True, slots=True)
class RowCopy:
    """A copy of a dense operand.

    rows: the copied matrix, at address 0.
    source: elements and strides of what one launch copies: its shape, the strides of rows and columns, the number of
        entries and their stride.
    starts: elements from the operand's address to the source of each launch. The copies of the launches follow each
        other.
    """

    rows: Rows
    shape: tuple[int, int]
    strides: tuple[int, int]
    entries: int
    entry_stride: int
    starts: tuple[int, ...]

    @classmethod
    def of(cls, dense: DenseMatrix, layout: BLayout) -> RowCopy:
        """The copy with this layout. The entries of a batch follow each other.

        One launch copies the rows of all entries of one axis. Views with more axes are rare. They need a launch for
        each element of the other axes.
        """
        walk, width = walk_of(dense, layout), dense.array.element.bytes
        *others, (entries, entry_stride), (rows, row_stride) = (
            (1, 0),
            (1, 0),
            *merged((*dense.entries, (walk.outer, walk.outer_stride))),
        )
        pitch = -(-walk.inner * width // LINE_BYTES) * LINE_BYTES
        batch = prod(size for size, _ in dense.entries)
        starts = tuple(
            sum(index * stride for index, (_, stride) in zip(place, others, strict=True))
            for place in itertools.product(*(range(size) for size, _ in others))
        )
        copied = Rows(0, walk.inner, walk.outer, pitch, width, None, batch, walk.outer * pitch)
        return cls(copied, (rows, walk.inner), (row_stride, walk.inner_stride), entries, entry_stride, starts)

    @property
    def nbytes(self) -> int:
        """The size of the copy in bytes."""
        return self.rows.batch * self.rows.rows * self.rows.pitch

    def bound(self, source: int, destination: int, ordinal: int, stream: int) -> list[BoundLaunch]:
        """The launches that copy from one address to another."""
        width, pitch = self.rows.element_bytes, self.rows.pitch
        part = self.entries * self.shape[0] * pitch
        return [
            bound_copy(
                source=source + start * width,
                shape=self.shape,
                strides=self.strides,
                element_bytes=width,
                destination=destination + number * part,
                pitch=pitch,
                entries=self.entries,
                entry_stride=self.entry_stride,
                ordinal=ordinal,
                stream=stream,
            )
            for number, start in enumerate(self.starts)
        ]


class CopiedFirst:
    """A launch of a product that first copies its dense operand. Each time it is sent, it takes memory for the copy, and
    releases it in the order of the stream.

    send, recover: as in `BoundLaunch`.
    """

    __slots__ = ("_bind", "_bound", "_capture", "_own", "_room")

    def __init__(
        self, copy: RowCopy, source: int, product: Callable[[int], Sendable], kind: Kind, ordinal: int, stream: int
    ) -> None:
        """source: address of the operand.
        product: makes the launch of the product that reads the copy at an address.
        kind: the library that allocates, except while the stream is captured.

        Raises RuntimeError if the copying kernels are not loaded while the stream is being captured.
        """
        check_copies(ordinal, copy.rows.element_bytes, copy.strides, stream)

        def bind(address: int) -> list[Sendable]:
            return [*copy.bound(source, address, ordinal, stream), product(address)]

        self._bind = bind
        self._bound: dict[int, list[Sendable]] = {}
        self._capture = None if stream in DEFAULT_STREAMS else capture_question(stream)
        self._own = scratch("louver", copy.nbytes, ordinal, stream)
        # PyTorch does not know that this handle is another stream in each thread.
        self._room = self._own if stream == PER_THREAD_STREAM else scratch(kind, copy.nbytes, ordinal, stream)

    def send(self) -> tuple[Any, ...]:
        """Send the copies and the product. Returns a tuple that begins with the driver's result code."""
        # The owner keeps the memory until all launches are sent.
        launches, _owner = self._ready()
        for launch in launches[:-1]:
            result = launch.send()
            if result[0]:
                return result
        return launches[-1].send()

    def recover(self, code: int) -> None:
        """Send the launches again after the driver refused one of them, or raise an error."""
        self()

    def __call__(self) -> None:
        """Send the launches. Raises as `BoundLaunch` does."""
        launches, _owner = self._ready()
        for launch in launches:
            launch()

    def _ready(self) -> tuple[list[Sendable], object]:
        """The launches, and the owner of their memory. Memory that is taken during a capture belongs to its graph."""
        if self._capture is not None and any(self._capture()):
            address, owner = self._own()
            return self._bind(address), owner
        address, owner = self._room()
        launches = self._bound.get(address)
        return launches or keep_recent(self._bound, address, self._bind(address), RECENT_ROOMS), owner
