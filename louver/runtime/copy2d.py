"""Copies a matrix of any strides and alignment to rows that a tensor map can describe.

There are kernels for each element size. They do not use tensor maps, and all addresses have 64 bits.

- The kernels that read along rows copy contiguous elements in words of 4 or 16 bytes, if alignment and sizes allow. The
  lanes of a warp read neighbours in a row.
- The others are for contiguous columns. They read along columns, and transpose tiles in shared memory. If alignment and
  sizes allow, they move elements of 1 and 2 bytes in words of 4 bytes.

So matrices with unit stride along rows or along columns are read and written in whole sectors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from louver.runtime.built import load_built
from louver.runtime.driver import is_capturing
from louver.runtime.module import ArgumentPack, BoundLaunch, LoadedKernel

if TYPE_CHECKING:
    from louver.ptx.module import Kernel

LANES = 32

WORD_BYTES = 4

THREADS = 256
"""Threads of a CTA: eight warps. Each warp has every eighth row of a tile."""

ELEMENT_BYTES = (1, 2, 4)

ROW_WORDS = (16, 4)
"""Bytes of the words in which kernels copy contiguous elements of a row, widest first."""

_CTAS_PER_SM = 32
"""More CTAs than fit on an SM at a time, so that waiting CTAs replace those that end early."""


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy kernel.

    element_bytes: 1, 2, 4 or 16. An element of 16 bytes is a word of a row.
    transposed: whether it reads along columns.
    packed: whether it moves words of neighbours in a column. All addresses, steps and sizes must then be whole words.
    """

    element_bytes: int
    transposed: bool
    packed: bool = False

    @property
    def elements(self) -> int:
        """Elements that a thread loads and stores at a time."""
        return WORD_BYTES // self.element_bytes if self.packed else 1

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile. A thread has eight or more loads in flight if the kernel transposes."""
        side = LANES * self.elements
        return side, 2 * side if self.transposed and not self.packed else side

    @classmethod
    def all(cls, element_bytes: int, *, transposed: bool) -> Iterator[Copying]:
        """The kernels for one element size and one direction of reading."""
        yield cls(element_bytes, transposed)
        if not transposed:
            yield from (cls(width, transposed) for width in ROW_WORDS if width > element_bytes)
        elif element_bytes < WORD_BYTES:
            yield cls(element_bytes, transposed, packed=True)


_PARAMETERS = ("u64", "u64", "u64", "u64", "u64", "u32", "u32", "u32", "u32", "u64", "u64", "u32", "u32")


def bound_copy(
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
) -> BoundLaunch:
    """The launch that copies `entries` matrices [rows, columns] to rows `pitch` bytes apart, in the order of `stream`.

    source: device pointer, a multiple of element_bytes.
    shape: rows and columns.
    strides: elements between rows and between columns, at least 0.
    element_bytes: 1, 2 or 4.
    destination: device pointer, a multiple of element_bytes.
    pitch: bytes between rows of the destination, a multiple of element_bytes and at least the bytes of a row.
    entry_stride: elements between the sources of two entries, at least 0.
    entry_pitch: bytes between the destinations of two entries; by default `rows` · `pitch`.

    Bytes between rows do not change. Source and destination must not overlap. Raises ValueError for a broken rule.
    """
    rows, columns = shape
    apart = rows * pitch if entry_pitch is None else entry_pitch
    _check(source, shape, (*strides, entry_stride), element_bytes, destination, (pitch, apart))
    if not 1 <= entries < 1 << 31:
        raise ValueError(f"a batch has 1 to 2^31 - 1 entries, got {entries}")
    row_step, column_step = (stride * element_bytes for stride in strides)
    steps = source, entry_stride * element_bytes, destination, pitch, apart
    if is_transposed(strides):
        packed = element_bytes < WORD_BYTES and strides[0] == 1
        packed = packed and not any(step % WORD_BYTES for step in (*steps, column_step))
        packed = packed and not any(size * element_bytes % WORD_BYTES for size in shape)
        wanted = Copying(element_bytes, True, packed)
    else:
        sizes = (*steps, row_step, columns * element_bytes)
        whole = (width for width in ROW_WORDS if strides[1] == 1 and not any(size % width for size in sizes))
        wanted = Copying(max(element_bytes, next(whole, 0)), False)
        if wanted.element_bytes > element_bytes:
            columns, column_step = columns * element_bytes // wanted.element_bytes, wanted.element_bytes
    if (ordinal, wanted) not in _ready():
        _make_ready(ordinal, element_bytes, wanted.transposed)
    kernel = _ready()[ordinal, wanted]
    ctas = _CTAS_PER_SM * kernel.device.sm_count
    row_groups, column_groups = groups(rows, columns, wanted.tile, ctas)
    entry_groups = min(entries, max(1, ctas // (row_groups * column_groups)))
    pack = ArgumentPack(_PARAMETERS)
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
    return kernel.bound(entry_groups * row_groups * column_groups, pack, stream)


def load_copies(ordinal: int, element_bytes: int) -> None:
    """Load the kernels that copy elements of this size, so that copies can be captured."""
    for transposed in (False, True):
        _make_ready(ordinal, element_bytes, transposed)


def check_copies(ordinal: int, element_bytes: int, strides: tuple[int, ...], stream: int) -> None:
    """Raises RuntimeError if the kernel for these strides is not loaded while `stream` is being captured."""
    if not has_copies(ordinal, element_bytes, strides) and is_capturing(stream):
        raise RuntimeError(
            "the kernels that copy operands must be loaded before a stream is captured: call louver.prepare before the "
            "capture, or give an operand with rows of unit stride whose address and pitch are multiples of 16 bytes"
        )


def has_copies(ordinal: int, element_bytes: int, strides: tuple[int, ...]) -> bool:
    """Whether the kernels for these strides are loaded."""
    return (ordinal, next(Copying.all(element_bytes, transposed=is_transposed(strides)))) in _ready()


@functools.cache
def _ready() -> dict[tuple[int, Copying], LoadedKernel]:
    return {}


def _make_ready(ordinal: int, element_bytes: int, transposed: bool) -> None:
    every = Copying.all(element_bytes, transposed=transposed)
    _ready().update({(ordinal, each): _loaded(ordinal, each) for each in every})


def is_transposed(strides: tuple[int, ...]) -> bool:
    """Whether columns are contiguous rather than rows, so that the kernel reads along columns."""
    row_stride, column_stride = strides
    return row_stride < column_stride


def groups(rows: int, columns: int, tile: tuple[int, int], ctas: int) -> tuple[int, int]:
    """The numbers r and c of CTAs that divide the rows and the columns of tiles of a matrix. Each CTA takes every r-th
    row, and in it every c-th tile. r · c is at most about `ctas`.
    """
    column_groups = min(-(-columns // tile[1]), ctas)
    row_groups = min(-(-rows // tile[0]), max(1, ctas // column_groups))
    return row_groups, column_groups


def build(copying: Copying) -> Kernel:
    """The kernel, with the parameters that `bound_copy` binds. The emulator can run it too."""
    from louver.runtime.copy2d_kernel import build_kernel

    return build_kernel(copying)


@functools.cache
def _loaded(ordinal: int, copying: Copying) -> LoadedKernel:
    facts = copying.element_bytes, copying.transposed, copying.packed
    return load_built(ordinal, "copy2d", *facts, build=lambda: build(copying))


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
