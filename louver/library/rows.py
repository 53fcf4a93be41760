"""Matrices that tensor maps can describe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from louver.compile.signature import SIZES, STRIDES
from louver.frontend.problem import BLayout
from louver.isa.tensormap import COPY_CHUNK
from louver.library.boxes import Held
from louver.library.dense import DenseMatrix, Stored
from louver.library.times import row_clocks

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
