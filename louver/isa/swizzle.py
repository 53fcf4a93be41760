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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from louver.isa.tensormap import SwizzleBytes

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
            raise ValueError(f"a swizzle spans 0 (none), 32, 64 or 128 bytes, got {self.span}")

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
class Tile:
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
            raise ValueError(f'a tile is "k" major or "mn" major, got {self.major!r}')
        if self.lines < 1 or self.lines % GROUP:
            raise ValueError(f"a tile has a multiple of {GROUP} lines, got {self.lines}: a core matrix has {GROUP}")
        if self.line_bytes < 1 or self.line_bytes % self.swizzle.width:
            raise ValueError(
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
