"""Matrices that tensor maps can describe."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from louver.choose.times import row_clocks
from louver.compile.signature import SIZES, STRIDES, BoxParameter, copied_box
from louver.frontend.problem import BLayout
from louver.ir.polynomial import Numbers
from louver.isa.bulk import COPY_CHUNK, TensorMap
from louver.library.dense import DenseMatrix, Stored
from louver.runtime.known_calls import keep_recent
from louver.runtime.tensormap import encode

METADATA_SLACK = 1024
"""Entries of legal codes after the metadata of register tiles, and after each row of it. A K step of a tile has no more
entries.
"""

RECENT_MAPS = 64
"""Number of encoded tensor maps that are kept. A recent address or shape is not encoded again."""


class Held(NamedTuple):
    """The memory of an array: its address and its size in bytes."""

    address: int
    nbytes: int


def tensor_map(box: BoxParameter, place: Held, numbers: Numbers) -> TensorMap:
    """The tensor map of an array. A dimension without a size in the kernel ends where the array ends.

    Raises ValueError if bulk copies cannot read the boxes: an index may be below 0, strides are not whole chunks, or the
    array is empty.
    """
    below = next((each for each in box.least if each.value(numbers) < 0), None)
    if below is not None:
        raise ValueError(
            f"boxes of {box.argument!r} begin in the array if {below} is at least 0, got {below.value(numbers)}"
        )
    strides = [each.value(numbers) for each in box.strides]
    whole = place.nbytes // box.element_bytes
    if box.part == "metadata":
        # Legal codes follow each row and the last row, so boxes may read beyond them.
        sizes = [strides[0] + METADATA_SLACK, (whole - METADATA_SLACK) // max(1, strides[0])]
    else:
        # Without a size, a dimension has every index that an element of the array can have. The map may reach beyond the
        # array. No load does, and a box has only what its load reads.
        known = [None if size is None else size.value(numbers) for size in box.sizes]
        sizes = [
            (whole - 1) // max(1, step) + 1 if size is None else size
            for size, step in zip(known, [1, *strides], strict=True)
        ]
    if box.free is not None:
        steps = [1, *strides]
        step = steps.pop(box.free)
        last = sum(
            (size - 1) * each for size, each in zip(sizes[: box.free] + sizes[box.free + 1 :], steps, strict=True)
        )
        if last >= step:
            raise ValueError(
                f"boxes of {box.argument!r} begin anywhere along a dimension, whose neighbours are then {last + 1} elements apart, got {step}"
            )
    apart = tuple(stride * box.element_bytes for stride in strides)
    shape = copied_box(box, numbers)
    return TensorMap(place.address, box.element_bytes, tuple(sizes), apart, shape, box.swizzle, adds=box.adds)


def encoded_map(box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
    """The tensor map in the driver's encoding. Raises as `tensor_map`, and DriverError."""
    return encode(tensor_map(box, place, numbers))


class RecentMaps:
    """Calls `encoded_map`, and keeps the recent maps of a kernel's boxes. Threads may share it."""

    __slots__ = ("_arrays", "_count", "_maps", "_numbers")

    def __init__(self) -> None:
        self._count = itertools.count()
        self._arrays: dict[BoxParameter, int] = {}
        self._numbers: dict[str, tuple[int, Callable[[Numbers], object]]] = {}
        self._maps: dict[tuple[object, ...], bytes] = {}

    def __call__(self, box: BoxParameter, place: Held, numbers: Numbers) -> bytes:
        """The encoded tensor map, see `encoded_map`. A whole box and a tail of as many rows have one map."""
        known = self._numbers.get(box.name)
        if known is None:
            array = self._arrays.setdefault(replace(box, name="", along=None, tailed=False), next(self._count))
            sizes = (size for size in (*box.sizes, *box.strides) if size is not None)
            leaves = dict.fromkeys(leaf for size in (*sizes, *box.least) for leaf in size.leaves)
            known = self._numbers[box.name] = array, operator.itemgetter(*leaves)
        array, of_box = known
        key = (array, place, copied_box(box, numbers), of_box(numbers))
        found = self._maps.get(key)
        if found is None:
            found = keep_recent(self._maps, key, encoded_map(box, place, numbers), RECENT_MAPS)
        return found


PITCH = 16
"""Addresses and row pitches of a tensor map are multiples of this number of bytes."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A matrix in device memory, in the terms of a tensor map.

    inner: contiguous elements of a row.
    pitch: bytes from one row to the next.
    owner: keeps the memory.
    batch: matrices of a batch; 1 without a batch.
    batch_pitch: bytes from one matrix of the batch to the next.
    """

    address: int
    inner: int
    rows: int
    pitch: int
    element_bytes: int
    owner: object
    batch: int = 1
    batch_pitch: int = 0

    @classmethod
    def of_elements(
        cls,
        address: int,
        sizes: tuple[int, int],
        pitch: int,
        element_bytes: int,
        owner: object = None,
        batch: int = 1,
        batch_pitch: int = 0,
    ) -> Rows:
        """A matrix whose sizes (rows, and elements of a row) and pitches are in elements.

        A single row has no neighbours, so it gets a legal pitch.
        """
        rows, inner = sizes
        apart = _whole(inner * element_bytes) if rows == 1 else pitch * element_bytes
        return cls(address, inner, rows, apart, element_bytes, owner, batch, batch_pitch * element_bytes)

    @property
    def aligned(self) -> bool:
        """Whether a tensor map can describe the matrix.

        Address and pitches must be multiples of 16 bytes. Rows must not overlap. The entries of a batch must not be one
        matrix that is repeated by a stride of 0.
        """
        whole = self.address % PITCH == 0 and self.pitch % PITCH == 0 and self.batch_pitch % PITCH == 0
        apart = self.batch == 1 or self.batch_pitch > 0
        return whole and apart and self.pitch >= self.inner * self.element_bytes

    @property
    def row_clocks(self) -> float:
        """See `times.row_clocks`. The pitch of a single row is never used."""
        pitch = math.gcd(self.pitch if self.rows > 1 else 0, self.batch_pitch)
        return row_clocks(self.address, pitch, self.inner * self.element_bytes)

    @property
    def bulk_writable(self) -> bool:
        """Whether bulk copies can write the matrix. They write whole chunks, so rows must be whole chunks too."""
        return self.aligned and self.inner * self.element_bytes % COPY_CHUNK == 0

    def moved(self, address: int) -> Rows:
        """A matrix of the same layout at another address, without an owner: the caller keeps the memory."""
        rows = self.inner, self.rows, self.pitch, self.element_bytes
        return Rows(address, *rows, None, self.batch, self.batch_pitch)

    def numbers(self, operand: str) -> dict[str, int]:
        """The sizes and strides (elements) for a launch, if the matrix is this operand."""
        width = self.element_bytes
        sizes, strides = (self.inner, self.rows, self.batch), (self.pitch // width, self.batch_pitch // width)
        return dict(zip((*SIZES[operand], *STRIDES[operand]), (*sizes, *strides), strict=True))

    @property
    def held(self) -> Held:
        """The memory from its first to its last element."""
        last = (self.rows - 1) * self.pitch + (self.batch - 1) * self.batch_pitch
        return Held(self.address, last + self.inner * self.element_bytes)


def rows_in_place(dense: DenseMatrix, layout: BLayout) -> Rows | None:
    """The rows of the dense operand in place: along K if "k_major", along N if "n_major". None if a copy is needed."""
    walk = walk_of(dense, layout)
    if (walk.inner > 1 and walk.inner_stride != 1) or len(dense.entries) > 1:
        return None
    entries, sizes, array = dense.entries[0] if dense.entries else (1, 0), (walk.outer, walk.inner), dense.array
    rows = Rows.of_elements(array.address, sizes, walk.outer_stride, array.element.bytes, array.owner, *entries)
    return rows if rows.aligned else None


def output_rows(out: Stored) -> Rows:
    """The rows of an output."""
    array, sizes = out.array, (out.rows, out.columns)
    return Rows.of_elements(
        array.address, sizes, out.pitch, array.element.bytes, array.owner, out.batch, out.batch_pitch
    )


class Walk(NamedTuple):
    """Sizes and strides of an operand's rows, in elements."""

    inner: int
    outer: int
    inner_stride: int
    outer_stride: int


def walk_of(dense: DenseMatrix, layout: BLayout) -> Walk:
    """The rows of the dense operand: along K if "k_major", along N if "n_major"."""
    if layout == "k_major":
        return Walk(dense.k, dense.n, dense.k_stride, dense.n_stride)
    return Walk(dense.n, dense.k, dense.n_stride, dense.k_stride)


def _whole(nbytes: int) -> int:
    return -(-nbytes // PITCH) * PITCH
