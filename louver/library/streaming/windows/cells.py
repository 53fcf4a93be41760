"""Arrays as a thread walks down them, a block at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from louver.formats.dtypes import ElementType
from louver.library.streaming.place import loaded, put
from louver.library.streaming.record import Access
from louver.ptx.builder import KernelBuilder
from louver.ptx.module import Address, Reg


@dataclass(frozen=True, slots=True)
class Cells:
    """An array of which a thread reads or writes blocks, each below the last.

    rows: of a block; it has one column, or one row of the columns that an access reaches. Its words hold neighbours side by side.
    at: the address of the next block. row_step: bytes from a row to the next. left: rows that there are from the first block on of
    those at once, none or less outside of the window. Both are registers of its own.
    """

    k: KernelBuilder
    type: ElementType
    access: Access
    rows: int
    at: Reg
    row_step: Reg
    left: Reg

    def load(self, count: int) -> list[list[Reg]]:
        """The words of the next blocks; zeros outside."""
        return [loaded(self.k, self._accesses(number), self.access.width) for number in range(count)]

    def store(self, blocks: Sequence[Sequence[Reg]]) -> None:
        """Write the next blocks; nothing outside."""
        for number, words in enumerate(blocks):
            put(self.k, self._accesses(number), self.access.width, words)

    def go(self, rows: int, beyond: int) -> None:
        """Go on so many rows from the first block at once, of which some are beyond the last."""
        k = self.k
        k.sub(self.left, rows, into=self.left)
        if beyond:
            k.add(self.at, k.mul_lo(self.row_step, beyond), into=self.at)

    def _accesses(self, number: int) -> Iterator[tuple[Address, Reg]]:
        k = self.k
        rows = self.access.width // self.type.bytes if self.access.columns else 1
        for row in range(number * self.rows, (number + 1) * self.rows, rows):
            yield Address(self.at), k.setp("gt", "s32", self.left, row)
            k.add(self.at, self.access.width if self.access.columns else self.row_step, into=self.at)
