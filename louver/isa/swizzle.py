"""Places of a tile's bytes in shared memory: swizzles, and the layout that bulk copies write.

A swizzle permutes the 16-byte chunks of each span. The number of the 128-byte line selects the permutation, so a column
of chunks touches all banks. Bulk copies write and wgmma reads through the swizzle. Both apply it to absolute addresses.

128-byte swizzle, chunks of eight consecutive lines (the pattern repeats every 1,024 bytes):

    line   chunk that stands at bytes 0 16 32 48 64 80 96 112
      0    0 1 2 3 4 5 6 7
      1    1 0 3 2 5 4 7 6
      2    2 3 0 1 6 7 4 5
      3    3 2 1 0 7 6 5 4
      4    4 5 6 7 0 1 2 3
      5    5 4 7 6 1 0 3 2
      6    6 7 4 5 2 3 0 1
      7    7 6 5 4 3 2 1 0

By a 64-bit matrix descriptor (`Descriptor`), wgmma reads an operand from shared memory:

    bits   0-13  start address / 16      bits 49-51  base offset (0: Louver aligns every tile to its swizzle's repeat)
    bits  16-29  leading offset / 16     bits 62-63  swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
    bits  32-45  stride offset / 16

The meaning of both offsets depends on the major dimension and the swizzle (lines and boxes as in `SwizzledTile`):

    major  swizzle     leading (LBO)                            stride (SBO)
    k      none        from 16 bytes of K to the next 16        from 8 rows to the next 8
    k      32/64/128   unused, 16 by convention                 from 8 rows to the next 8
    mn     none        from 8 steps of K to the next 8          from 16 bytes of M or N to the next 16
    mn     32/64/128   from one span of M or N to the next      from 8 steps of K to the next 8

Eight lines of a group are contiguous: 16 bytes of each without a swizzle, one span of each with it. A K-major step
along K adds its bytes to the start within a span; at its end, go to the next box. An MN-major step adds its lines times
the width. The swizzle applies to the sum, so the start stays a logical address. Source: PTX ISA, Matrix Descriptor
Format and Strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from louver.isa.bulk import SwizzleBytes
from louver.isa.rule import RuleError

CHUNK = 16
"""Bytes that every swizzle keeps together."""

BANK_LINE = 128
"""Bytes of one line across all banks of shared memory. Swizzles count in these lines."""

GROUP = 8
"""Lines of a core matrix, and of one repeat of a swizzle."""

Major = Literal["k", "mn"]
"""The dimension along a line of a tile: "k", or "mn" (M of A, N of B)."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """A swizzle mode. span: bytes within which chunks change places: 32, 64 or 128; 0 for no swizzle.

    Source: PTX ISA, Shared Memory Matrix Layout; CUDA driver API, CUtensorMapSwizzle.
    """

    span: SwizzleBytes

    def __post_init__(self) -> None:
        if self.span not in (0, 32, 64, 128):
            raise RuleError(f"a swizzle spans 0 (none), 32, 64 or 128 bytes, got {self.span}")

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats, and alignment of a tile: 256, 512 or 1024; 128 without a swizzle."""
        return GROUP * (self.span or CHUNK)

    @property
    def width(self) -> int:
        """Bytes of a line in one box: the span, or 16 without a swizzle (eight lines are then a core matrix)."""
        return self.span or CHUNK

    def apply(self, address: NDArray[np.int64]) -> NDArray[np.int64]:
        """Physical byte addresses of logical byte addresses, elementwise. The function is its own inverse."""
        if self.span == 0:
            return address
        phase = (address // BANK_LINE) & (self.span // CHUNK - 1)
        return address ^ (phase * CHUNK)


@dataclass(frozen=True, slots=True)
class SwizzledTile:
    """A matrix tile in shared memory. Its boxes are one swizzle width wide and follow each other.

    major: "k": a line is a row of A or a column of B, along K; "mn": a line is one step of K. lines: number of lines.
    line_bytes: logical bytes of a line. Each box holds `swizzle.width` bytes of all lines, as one bulk tensor copy of a
    box {width, lines} writes it. The tile starts at a multiple of `swizzle.repeat`.
    """

    major: Major
    lines: int
    line_bytes: int
    swizzle: Swizzle

    def __post_init__(self) -> None:
        if self.major not in ("k", "mn"):
            raise RuleError(f'a tile is "k" major or "mn" major, got {self.major!r}')
        if self.lines < 1 or self.lines % GROUP:
            raise RuleError(f"a tile has a multiple of {GROUP} lines, got {self.lines}: a core matrix has {GROUP}")
        if self.line_bytes < 1 or self.line_bytes % self.swizzle.width:
            raise RuleError(
                f"a line is made of whole boxes of {self.swizzle.width} bytes, got {self.line_bytes} bytes: "
                "choose a narrower swizzle or a wider tile"
            )

    @property
    def box_bytes(self) -> int:
        return self.lines * self.swizzle.width

    @property
    def bytes(self) -> int:
        return self.lines * self.line_bytes

    def offset(self, line: NDArray[np.int64], byte: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets in bytes from the tile's start, for logical bytes (line, byte along the line), elementwise."""
        width = self.swizzle.width
        return self.swizzle.apply(byte // width * self.box_bytes + line * width + byte % width)


FIELD_MAX = (1 << 14) - 1
"""Greatest value of the three 14-bit fields, in units of 16 bytes."""

START_MAX = (FIELD_MAX + 1) * CHUNK - 1
"""Greatest shared address at which an operand can start. Addresses in a CTA of a cluster have more bits."""

START_BIT, LEADING_BIT, STRIDE_BIT, BASE_OFFSET_BIT, MODE_BIT = 0, 16, 32, 49, 62
"""Lowest bit of each field."""

MODE: dict[SwizzleBytes, int] = {0: 0, 128: 1, 64: 2, 32: 3}
"""The swizzle field for each span in bytes."""

SPAN: dict[int, SwizzleBytes] = {mode: span for span, mode in MODE.items()}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A decoded matrix descriptor. start: shared address. leading, stride: the offsets of the module's table. All three
    are bytes, multiples of 16 below 2^18.
    """

    start: int
    leading: int
    stride: int
    swizzle: Swizzle

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("leading", self.leading), ("stride", self.stride)):
            if value % CHUNK or not 0 <= value <= FIELD_MAX * CHUNK:
                raise RuleError(
                    f"a descriptor's {name} is a multiple of 16 bytes up to {FIELD_MAX * CHUNK}, got {value}"
                )

    def encode(self) -> int:
        """The 64 bits. The start is the lowest field, so adding `bytes >> 4` to the code moves it."""
        return (
            self.start // CHUNK << START_BIT
            | self.leading // CHUNK << LEADING_BIT
            | self.stride // CHUNK << STRIDE_BIT
            | MODE[self.swizzle.span] << MODE_BIT
        )

    @classmethod
    def decode(cls, bits: int) -> Descriptor:
        """The descriptor in 64 bits. Raises ValueError for bits outside the fields, and for a base offset."""
        if not 0 <= bits < 1 << 64:
            raise RuleError(f"a matrix descriptor has 64 bits, got {bits:#x}")
        if bits >> BASE_OFFSET_BIT & 7:
            raise RuleError(
                f"the base offset must be 0, got {bits >> BASE_OFFSET_BIT & 7}: align the tile to its swizzle's repeat"
            )
        start, leading, stride = (bits >> bit & FIELD_MAX for bit in (START_BIT, LEADING_BIT, STRIDE_BIT))
        made = cls(start * CHUNK, leading * CHUNK, stride * CHUNK, Swizzle(SPAN[bits >> MODE_BIT]))
        if made.encode() != bits:
            raise RuleError(f"a matrix descriptor's unused bits are 0, got {bits:#018x}: is it an address?")
        return made

    def chunks(self, major: Major, lines: int, line_bytes: int) -> NDArray[np.int64]:
        """Shared addresses of an operand's 16-byte chunks: int64 [lines, line_bytes / 16].

        lines: rows of A or columns of B (K-major), or steps of K (MN-major). Raises ValueError if the operand crosses
        the end of a swizzle span in a way that no descriptor expresses.
        """
        span = self.swizzle.span
        within = min(line_bytes, span) if major == "mn" else line_bytes
        if span and self.start % span + within > span:
            raise RuleError(
                f"a product's {line_bytes} bytes along a line must stay inside one span of {span} bytes, got a start "
                f"{self.start % span} bytes into it: use a wider swizzle, or start at a span"
            )
        line = np.arange(lines, dtype=np.int64)[:, None]
        chunk = np.arange(line_bytes // CHUNK, dtype=np.int64)[None, :]
        per_span = self.swizzle.width // CHUNK
        if major == "k":
            rows, along = self.stride, (chunk * CHUNK if span else chunk * self.leading)
        elif span:
            rows, along = self.stride, chunk // per_span * self.leading + chunk % per_span * CHUNK
        else:
            rows, along = self.leading, chunk * self.stride
        logical = self.start + line // GROUP * rows + line % GROUP * self.swizzle.width + along
        return self.swizzle.apply(logical)


def describe(tile: SwizzledTile, base: int, line: int = 0, byte: int = 0) -> Descriptor:
    """The descriptor for the part of `tile` that starts at (line, byte along the line).

    base: the tile's shared address, a multiple of the swizzle's repeat. line: a multiple of 8. byte: a multiple of 16.
    Products step along K with `byte` (K-major operands) or with `line` (MN-major ones).
    """
    swizzle = tile.swizzle
    if base % swizzle.repeat:
        raise RuleError(f"the tile starts at a multiple of {swizzle.repeat} bytes, got {base:#x}: align it")
    if line % GROUP or not 0 <= line < tile.lines:
        raise RuleError(f"the first line is a multiple of {GROUP} below {tile.lines}, got {line}")
    if byte % CHUNK or not 0 <= byte < tile.line_bytes:
        raise RuleError(f"the first byte is a multiple of {CHUNK} below {tile.line_bytes}, got {byte}")
    start = base + byte // swizzle.width * tile.box_bytes + line * swizzle.width + byte % swizzle.width
    group = GROUP * swizzle.width
    if tile.major == "k":
        return Descriptor(start, CHUNK if swizzle.span else tile.box_bytes, group, swizzle)
    if swizzle.span:
        return Descriptor(start, tile.box_bytes, group, swizzle)
    return Descriptor(start, group, tile.box_bytes, swizzle)
