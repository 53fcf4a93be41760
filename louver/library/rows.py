"""Matrices that tensor maps can describe: in place, or copied to aligned rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from louver.compile.signature import SIZES, STRIDES
from louver.frontend.problem import BLayout
from louver.isa.tensormap import COPY_CHUNK
from louver.library.boxes import Held
from louver.library.dense import DenseMatrix, Stored, merged
from louver.runtime.copy2d import check_copies, copy_matrix
from louver.runtime.memory import DeviceBuffer

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
    walk = _walk(dense, layout)
    if (walk.inner > 1 and walk.inner_stride != 1) or len(dense.entries) > 1:
        return None
    width = dense.array.element.bytes
    # The pitch of a single row is never used. It only has to be legal.
    pitch = _whole(walk.inner * width) if walk.outer == 1 else walk.outer_stride * width
    batch, stride = dense.entries[0] if dense.entries else (1, 0)
    rows = Rows(dense.array.address, walk.inner, walk.outer, pitch, width, dense.array.owner, batch, stride * width)
    return rows if rows.aligned else None


def output_rows(out: Stored) -> Rows:
    """The rows of an output."""
    width = out.array.element.bytes
    pitch = _whole(out.columns * width) if out.rows == 1 else out.pitch * width
    address, owner = out.array.address, out.array.owner
    return Rows(address, out.columns, out.rows, pitch, width, owner, out.batch, out.batch_pitch * width)


def copied_rows(dense: DenseMatrix, layout: BLayout, ordinal: int, stream: int) -> Rows:
    """A copy of the dense operand with aligned rows, made in the order of `stream`. The entries of a batch follow each
    other.

    Raises RuntimeError if the copying kernels are not loaded while the stream is being captured.
    """
    walk = _walk(dense, layout)
    width = dense.array.element.bytes
    *others, (entries, entry_stride), (rows, row_stride) = (
        (1, 0),
        (1, 0),
        *merged((*dense.entries, (walk.outer, walk.outer_stride))),
    )
    strides = (row_stride, walk.inner_stride)
    check_copies(ordinal, width, strides, stream)
    pitch = _whole(walk.inner * width)
    batch = prod(size for size, _ in dense.entries)
    buffer = DeviceBuffer(batch * walk.outer * pitch, ordinal=ordinal, stream=stream)
    # One launch copies the rows of all entries of one axis. Views with more axes are rare; they need a launch for each
    # element of the other axes.
    for number, place in enumerate(itertools.product(*(range(size) for size, _ in others))):
        start = sum(index * stride for index, (_, stride) in zip(place, others, strict=True))
        copy_matrix(
            source=dense.array.address + start * width,
            shape=(rows, walk.inner),
            strides=strides,
            element_bytes=width,
            destination=buffer.address + number * entries * rows * pitch,
            pitch=pitch,
            entries=entries,
            entry_stride=entry_stride,
            ordinal=ordinal,
            stream=stream,
        )
    return Rows(buffer.address, walk.inner, walk.outer, pitch, width, buffer, batch, walk.outer * pitch)


class _Walk(NamedTuple):
    inner: int
    outer: int
    inner_stride: int
    outer_stride: int


def _walk(dense: DenseMatrix, layout: BLayout) -> _Walk:
    if layout == "k_major":
        return _Walk(dense.k, dense.n, dense.k_stride, dense.n_stride)
    return _Walk(dense.n, dense.k, dense.n_stride, dense.k_stride)


def _whole(nbytes: int) -> int:
    return -(-nbytes // PITCH) * PITCH
