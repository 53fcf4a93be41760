"""The 64-bit matrix descriptor by which wgmma reads an operand from shared memory.

    bits   0-13  start address / 16      bits 49-51  base offset (0: Louver aligns every tile to its swizzle's repeat)
    bits  16-29  leading offset / 16     bits 62-63  swizzle: 0 none, 1 128 bytes, 2 64 bytes, 3 32 bytes
    bits  32-45  stride offset / 16

The meaning of both offsets depends on the major dimension and the swizzle (lines and boxes as in `swizzle.Tile`):

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

import numpy as np
from numpy.typing import NDArray

from louver.isa.swizzle import CHUNK, GROUP, Major, Swizzle, Tile
from louver.isa.tensormap import SwizzleBytes

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
                raise ValueError(
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
            raise ValueError(f"a matrix descriptor has 64 bits, got {bits:#x}")
        if bits >> BASE_OFFSET_BIT & 7:
            raise ValueError(
                f"the base offset must be 0, got {bits >> BASE_OFFSET_BIT & 7}: align the tile to its swizzle's repeat"
            )
        start, leading, stride = (bits >> bit & FIELD_MAX for bit in (START_BIT, LEADING_BIT, STRIDE_BIT))
        made = cls(start * CHUNK, leading * CHUNK, stride * CHUNK, Swizzle(SPAN[bits >> MODE_BIT]))
        if made.encode() != bits:
            raise ValueError(f"a matrix descriptor's unused bits are 0, got {bits:#018x}: is it an address?")
        return made

    def chunks(self, major: Major, lines: int, line_bytes: int) -> NDArray[np.int64]:
        """Shared addresses of an operand's 16-byte chunks: int64 [lines, line_bytes / 16].

        lines: rows of A or columns of B (K-major), or steps of K (MN-major). Raises ValueError if the operand crosses
        the end of a swizzle span in a way that no descriptor expresses.
        """
        span = self.swizzle.span
        within = min(line_bytes, span) if major == "mn" else line_bytes
        if span and self.start % span + within > span:
            raise ValueError(
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


def describe(tile: Tile, base: int, line: int = 0, byte: int = 0) -> Descriptor:
    """The descriptor for the part of `tile` that starts at (line, byte along the line).

    base: the tile's shared address, a multiple of the swizzle's repeat. line: a multiple of 8. byte: a multiple of 16.
    Products step along K with `byte` (K-major operands) or with `line` (MN-major ones).
    """
    swizzle = tile.swizzle
    if base % swizzle.repeat:
        raise ValueError(f"the tile starts at a multiple of {swizzle.repeat} bytes, got {base:#x}: align it")
    if line % GROUP or not 0 <= line < tile.lines:
        raise ValueError(f"the first line is a multiple of {GROUP} below {tile.lines}, got {line}")
    if byte % CHUNK or not 0 <= byte < tile.line_bytes:
        raise ValueError(f"the first byte is a multiple of {CHUNK} below {tile.line_bytes}, got {byte}")
    start = base + byte // swizzle.width * tile.box_bytes + line * swizzle.width + byte % swizzle.width
    group = GROUP * swizzle.width
    if tile.major == "k":
        return Descriptor(start, CHUNK if swizzle.span else tile.box_bytes, group, swizzle)
    if swizzle.span:
        return Descriptor(start, tile.box_bytes, group, swizzle)
    return Descriptor(start, group, tile.box_bytes, swizzle)
