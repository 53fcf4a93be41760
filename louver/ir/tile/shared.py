"""Tiles in shared memory: `#tt.shared<{order = [1, 0]}>`.

Rows along the fastest dimension, order[0], stand as bulk copies and `wgmma` have them (`louver.isa.swizzle.Tile`): boxes of up to
128 bytes a row, one box after the other, and in each the 16-byte chunks of a row change places by the row's number.
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
from louver.isa.swizzle import BANK_LINE, CHUNK, Swizzle
from louver.isa.tensormap import SwizzleBytes


@irdl_attr_definition
class SharedAttr(Encoding):
    """A matrix in shared memory, or one row. order: its dimensions, that of neighbours first."""

    name = "tt.shared"
    FIELDS = ("order",)
    order: Integers

    @classmethod
    def along(cls, dimension: int, *, rank: int = 2) -> SharedAttr:
        """Neighbours along a dimension."""
        return cls(integers((dimension, *(each for each in range(rank) if each != dimension))))

    def turned(self) -> SharedAttr:
        """That of the transpose, in the same place."""
        return SharedAttr.along(1 - numbers_of(self.order)[0])

    def place(self, shape: Sequence[int], size: int) -> SharedLayout:
        """The places of the elements, `size` bytes each."""
        return SharedLayout(tuple(shape), numbers_of(self.order)[0], size)

    def verify(self) -> None:
        if sorted(numbers_of(self.order)) not in ([0], [0, 1]):
            raise VerifyException(f"order has the two dimensions of a matrix, or that of a row, got {self}")


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A matrix of `shape`, or a row, powers of two, elements of `size` bytes, neighbours along `fast`.

    Raises ValueError for rows that are shorter than a chunk.
    """

    shape: Vector
    fast: int
    size: int

    def __post_init__(self) -> None:
        if self.row_bytes < CHUNK:
            raise ValueError(f"rows in shared memory have {CHUNK} bytes at least, got {self.row_bytes}")

    @property
    def rows(self) -> int:
        """Rows of the matrix, which are its columns where these are the fast dimension."""
        return self.shape[1 - self.fast] if len(self.shape) == 2 else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, over all boxes."""
        return self.shape[self.fast] * self.size

    @property
    def bytes(self) -> int:
        """Of the whole tile."""
        return prod(self.shape) * self.size

    @property
    def swizzle(self) -> Swizzle:
        """The widest one that a row fills; none for rows of one chunk."""
        width = min(self.row_bytes, BANK_LINE)
        return Swizzle(cast(SwizzleBytes, 0 if width == CHUNK else width))

    def offset(self, place: Vector) -> int:
        """Bytes from the tile's start to an element.

        Linear over bits: where places share no bit, the offset of their sum is the exclusive or of their offsets.
        """
        row = place[1 - self.fast] if len(place) == 2 else 0
        byte, width = place[self.fast] * self.size, self.swizzle.width
        flat = byte // width * self.rows * width + row * width + byte % width
        phase = flat // BANK_LINE & (width // CHUNK - 1)
        return flat ^ phase * CHUNK
