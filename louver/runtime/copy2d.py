"""Copying a matrix of any strides and alignment into rows, such as a tensor map can describe.

Two kernels for each element size, both streaming and free of tensor maps: one reads along rows, neighbours in a warp next
to each other in a row; the other, for matrices whose columns are contiguous, reads along columns and turns 32 × 32 tiles
round in shared memory. So either unit stride is read and written in whole sectors. Addresses are 64 bits wide throughout.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from louver.runtime.built import load_built
from louver.runtime.driver import is_capturing
from louver.runtime.module import ArgumentPack, LoadedKernel

if TYPE_CHECKING:
    from louver.ptx.module import Kernel

TILE = 32
"""Rows and columns of a tile."""

THREADS = 256
"""Of a CTA: eight warps, each with every eighth row of a tile."""

ELEMENT_BYTES = (1, 2, 4)

_CTAS_PER_SM = 8
_PARAMETERS = ("u64", "u64", "u64", "u64", "u64", "u32", "u32", "u32", "u32", "u64", "u64", "u32", "u32")


def copy_matrix(
    *,
    source: int,
    shape: tuple[int, int],
    strides: tuple[int, int],
    element_bytes: int,
    destination: int,
    pitch: int,
    entries: int = 1,
    entry_stride: int = 0,
    entry_pitch: int | None = None,
    ordinal: int = 0,
    stream: int = 0,
) -> None:
    """Copy a matrix [rows, columns] into rows `pitch` bytes apart, or `entries` of them, in the order of `stream`.

    source: device pointer, a multiple of element_bytes (1, 2 or 4). strides: elements between rows and between columns, at
    least 0. entry_stride: elements between the sources of two entries, at least 0. destination: device pointer; it and `pitch`
    are multiples of element_bytes, and a row's elements fit the pitch. entry_pitch: bytes between the destinations of two
    entries, by default those of an entry's rows. Bytes between rows are left as they are. Source and destination must not
    overlap. Raises ValueError for what breaks a rule.
    """
    rows, columns = shape
    apart = rows * pitch if entry_pitch is None else entry_pitch
    _check(source, shape, (*strides, entry_stride), element_bytes, destination, (pitch, apart))
    if not 1 <= entries < 1 << 31:
        raise ValueError(f"a batch has 1 to 2^31 - 1 entries, got {entries}")
    transposed = is_transposed(strides)
    kernel = _loaded(ordinal, element_bytes, transposed)
    _ready()[ordinal, element_bytes, transposed] = kernel
    ctas = _CTAS_PER_SM * kernel.device.sm_count
    row_groups, column_groups = groups(rows, columns, ctas)
    entry_groups = min(entries, max(1, ctas // (row_groups * column_groups)))
    pack = ArgumentPack(_PARAMETERS)
    row_step, column_step = (stride * element_bytes for stride in strides)
    pack.bind(
        source,
        destination,
        row_step,
        column_step,
        pitch,
        rows,
        columns,
        row_groups,
        column_groups,
        entry_stride * element_bytes,
        apart,
        entries,
        entry_groups,
    )
    kernel.launch(entry_groups * row_groups * column_groups, pack, stream)


def load_copies(ordinal: int, element_bytes: int) -> None:
    """Load the kernels that copy elements of a size, so that copies may be captured."""
    for transposed in (False, True):
        _ready()[ordinal, element_bytes, transposed] = _loaded(ordinal, element_bytes, transposed)


def check_copies(ordinal: int, element_bytes: int, strides: tuple[int, ...], stream: int) -> None:
    """Raises RuntimeError when the kernel that copies a matrix of these strides would have to be loaded while `stream` is captured."""
    if (ordinal, element_bytes, is_transposed(strides)) not in _ready() and is_capturing(stream):
        raise RuntimeError(
            "the kernels that copy operands must be loaded before a stream is captured: call louver.prepare before the "
            "capture, or give an operand with rows of unit stride whose address and pitch are multiples of 16 bytes"
        )


@functools.cache
def _ready() -> dict[tuple[int, int, bool], LoadedKernel]:
    return {}


def is_transposed(strides: tuple[int, ...]) -> bool:
    """Whether neighbours in memory are neighbours along a column, so that the kernel reads columns."""
    row_stride, column_stride = strides
    return row_stride < column_stride


def groups(rows: int, columns: int, ctas: int) -> tuple[int, int]:
    """The numbers of CTAs that share the rows and the columns of a matrix, together about `ctas` at most; each takes every so-manieth tile."""
    column_groups = min(-(-columns // TILE), ctas)
    row_groups = min(-(-rows // TILE), max(1, ctas // column_groups))
    return row_groups, column_groups


def build(element_bytes: int, *, transposed: bool) -> Kernel:
    """The kernel; its parameters are those that `copy_matrix` binds. It runs on the emulator too."""
    from louver.runtime.copy2d_kernel import build_kernel

    return build_kernel(element_bytes, transposed=transposed)


@functools.cache
def _loaded(ordinal: int, element_bytes: int, transposed: bool) -> LoadedKernel:
    return load_built(
        ordinal, "copy2d", element_bytes, transposed, build=lambda: build(element_bytes, transposed=transposed)
    )


def _check(
    source: int,
    shape: tuple[int, int],
    strides: tuple[int, ...],
    element_bytes: int,
    destination: int,
    pitches: tuple[int, int],
) -> None:
    (rows, columns), (pitch, apart) = shape, pitches
    if element_bytes not in ELEMENT_BYTES:
        raise ValueError(f"elements have 1, 2 or 4 bytes, got {element_bytes}")
    if not (1 <= rows < 1 << 31 and 1 <= columns < 1 << 31):
        raise ValueError(f"a matrix has 1 to 2^31 - 1 rows and columns, got {shape}")
    if min(strides) < 0:
        raise ValueError(f"strides are at least 0, got {strides}: copy the array first")
    if source % element_bytes:
        raise ValueError(f"the source must be a multiple of {element_bytes} bytes, got {source:#x}")
    if destination % element_bytes or pitch % element_bytes or apart % element_bytes:
        raise ValueError(
            f"the destination and its pitches must be multiples of {element_bytes} bytes, got {destination:#x}, {pitch} and {apart}"
        )
    if pitch < columns * element_bytes:
        raise ValueError(
            f"a row of {columns} elements needs {columns * element_bytes} bytes, got a pitch of {pitch}: widen it"
        )
    if apart < rows * pitch:
        raise ValueError(f"entries of {rows} rows are {rows * pitch} bytes or more apart, got {apart}: widen it")
