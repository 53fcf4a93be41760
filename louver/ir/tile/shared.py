"""Tiles in shared memory: `#tt.shared<{order = [1, 0]}>`.

Rows are along the fastest dimension, order[0], in the layout of bulk copies and `wgmma` (`louver.isa.swizzle.Tile`). A
box has up to 128 bytes of each row, and boxes follow each other. In a box, the row number permutes the 16-byte chunks
of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from xdsl.irdl import irdl_attr_definition
from xdsl.utils.exceptions import VerifyException

from louver.ir.tile.encodings import Encoding, Integers, integers, numbers_of
from louver.ir.tile.layout import Vector
from louver.isa.bulk import SwizzleBytes
from louver.isa.rule import RuleError
from louver.isa.swizzle import BANK_LINE, CHUNK, Swizzle


@irdl_attr_definition
class SharedAttr(Encoding):
    """A matrix, or one row, in shared memory. order: its dimensions. Neighbours are along the first one."""

    name = "tt.shared"
    FIELDS = ("order",)
    order: Integers

    @classmethod
    def along(cls, dimension: int, *, rank: int = 2) -> SharedAttr:
        """The encoding with neighbours along a dimension."""
        return cls(integers((dimension, *(each for each in range(rank) if each != dimension))))

    def turned(self) -> SharedAttr:
        """The encoding of the transpose in the same place."""
        return SharedAttr.along(1 - numbers_of(self.order)[0])

    def place(self, shape: Sequence[int], size: int) -> SharedLayout:
        """The places of elements of `size` bytes."""
        return SharedLayout(tuple(shape), numbers_of(self.order)[0], size)

    def verify(self) -> None:
        if sorted(numbers_of(self.order)) not in ([0], [0, 1]):
            raise VerifyException(f"order has the two dimensions of a matrix, or that of a row, got {self}")


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A matrix or a row in shared memory. Raises ValueError for rows that are shorter than a chunk.

    shape: its shape, powers of two.
    fast: the dimension of neighbours.
    size: bytes of an element.
    """

    shape: Vector
    fast: int
    size: int

    def __post_init__(self) -> None:
        if self.row_bytes < CHUNK:
            raise RuleError(f"rows in shared memory have {CHUNK} bytes at least, got {self.row_bytes}")

    @property
    def rows(self) -> int:
        """Lines of neighbours: rows of the matrix, or its columns if neighbours are along dimension 0."""
        return self.shape[1 - self.fast] if len(self.shape) == 2 else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, over all boxes."""
        return self.shape[self.fast] * self.size

    @property
    def bytes(self) -> int:
        """Bytes of the whole tile."""
        return prod(self.shape) * self.size

    @property
    def swizzle(self) -> Swizzle:
        """The widest swizzle that a row fills; none for rows of one chunk."""
        width = min(self.row_bytes, BANK_LINE)
        return Swizzle(cast(SwizzleBytes, 0 if width == CHUNK else width))

    def offset(self, place: Vector) -> int:
        """Bytes from the start of the tile to an element.

        It is linear over bits: if places share no bit, the offset of their sum is the exclusive or of their offsets.
        """
        row = place[1 - self.fast] if len(place) == 2 else 0
        byte, width = place[self.fast] * self.size, self.swizzle.width
        flat = byte // width * self.rows * width + row * width + byte % width
        phase = flat // BANK_LINE & (width // CHUNK - 1)
        return flat ^ phase * CHUNK
