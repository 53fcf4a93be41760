"""Places of a tile's bytes in shared memory: the swizzles, and tiles as bulk copies write them.

A swizzle permutes the 16-byte chunks of each span by the number of the 128-byte line they are in, so that a column of
chunks touches all banks. The tensor-map engine writes through it and wgmma reads through it; both see the absolute address.

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
"""Bytes of shared memory that one access of all banks covers; the swizzles count in these lines."""

GROUP = 8
"""Lines that one core matrix, and one repeat of a swizzle, has."""

Major = Literal["k", "mn"]
"""The dimension that runs along a line of a tile: "k", or "mn" (M of A, N of B)."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """One swizzle mode. span: bytes whose chunks change places among themselves: 32, 64 or 128; 0 for none.

    Source: PTX ISA, Shared Memory Matrix Layout; CUDA driver API, CUtensorMapSwizzle.
    """

    span: SwizzleBytes

    def __post_init__(self) -> None:
        if self.span not in (0, 32, 64, 128):
            raise ValueError(f"a swizzle spans 0 (none), 32, 64 or 128 bytes, got {self.span}")

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats, and to a multiple of which a tile is aligned: 256, 512 or 1024; 128 for none."""
        return GROUP * (self.span or CHUNK)

    @property
    def width(self) -> int:
        """Bytes of a line in one box: the span; 16 without a swizzle, so that eight lines make a core matrix of 128 bytes."""
        return self.span or CHUNK

    def apply(self, address: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte addresses where logical byte addresses stand, elementwise; its own inverse."""
        if self.span == 0:
            return address
        phase = (address // BANK_LINE) & (self.span // CHUNK - 1)
        return address ^ (phase * CHUNK)


@dataclass(frozen=True, slots=True)
class Tile:
    """A matrix tile in shared memory, made of boxes one swizzle width wide that stand one after the other.

    major: "k": a line is a row of A or a column of B, and K runs along it; "mn": a line is one step of K.
    lines: lines of the tile. line_bytes: logical bytes of a line. Each box holds all lines, `swizzle.width` bytes of each:
    what one bulk tensor copy of a box {width, lines} writes. The tile starts at a multiple of `swizzle.repeat`.
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
        """Bytes of one box."""
        return self.lines * self.swizzle.width

    @property
    def bytes(self) -> int:
        """Bytes of the tile."""
        return self.lines * self.line_bytes

    def offset(self, line: NDArray[np.int64], byte: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte offsets from the tile's start at which logical bytes (line, byte along the line) stand, elementwise."""
        width = self.swizzle.width
        return self.swizzle.apply(byte // width * self.box_bytes + line * width + byte % width)

    def image(self, matrix: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The tile's bytes in shared memory, uint8 [bytes], from its logical bytes, uint8 [lines, line_bytes]."""
        if matrix.shape != (self.lines, self.line_bytes):
            raise ValueError(f"the tile is [{self.lines}, {self.line_bytes}] bytes, got {list(matrix.shape)}")
        placed = np.empty(self.bytes, dtype=np.uint8)
        line, byte = np.arange(self.lines)[:, None], np.arange(self.line_bytes)[None, :]
        placed[self.offset(line, byte)] = matrix
        return placed
