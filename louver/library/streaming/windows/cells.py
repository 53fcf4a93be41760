"""Arrays that a thread accesses from top to bottom, block by block."""

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
    """An array that a thread reads or writes in blocks, from top to bottom. A block is some rows of one column, or one
    row of the columns of an access. Its words hold neighbouring elements side by side.

    rows: rows of a block.
    at: register with the address of the next block.
    row_step: bytes from one row to the next.
    left: register with the number of rows from the next block on; 0 or less outside the window. Only `go` changes it.
    """

    k: KernelBuilder
    type: ElementType
    access: Access
    rows: int
    at: Reg
    row_step: Reg
    left: Reg

    def load(self, count: int) -> list[list[Reg]]:
        """The words of the next `count` blocks; zeros outside the window."""
        return [loaded(self.k, self._accesses(number), self.access.width) for number in range(count)]

    def store(self, blocks: Sequence[Sequence[Reg]]) -> None:
        """Write the next blocks; nothing outside the window."""
        for number, words in enumerate(blocks):
            put(self.k, self._accesses(number), self.access.width, words)

    def go(self, rows: int, beyond: int) -> None:
        """Advance by `rows` rows. beyond: how many of them come after the blocks that were accessed since the last
        `go`.
        """
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
