"""Computes layouts of the values and metadata of a sparse tile.

Each thread has those of the groups of its dense elements. The map from an element's row and column to its value and
metadata entry acts on each bit separately. So the steps of the dense tile's layout give steps of both parts. Steps
within a group, or between the codes of an entry, do not move. Threads that differ by such a step have the same values
or entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from louver.ir.tile.layout import Layout, Steps, Vector
from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES
from louver.isa.metadata import CODE_BITS, ENTRY_CODES, GROUPS, MAPS, MetadataMap
from louver.isa.rule import RuleError

KEPT = 2
"""Elements along the sparse axis for each kept one: two of four, or one of two, are kept."""

PAIR = 2
"""The smallest number of neighbours along the sparse axis in a thread."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a dense tile whose dimension `columns` is K. map: the places of codes in its metadata."""

    map: MetadataMap
    columns: int

    @classmethod
    def of(cls, bits: int, columns: int) -> Parts:
        """The parts with metadata for elements of `bits` bits."""
        return cls(MAPS[bits], columns)

    def value(self, place: Vector) -> Vector:
        """The place of the first kept value in the group of an element."""
        row, column = self._split(place)
        return self._joined(row, column // self.map.group * self.kept)

    def first(self, place: Vector) -> Vector:
        """The place of the first element in the group of a kept value."""
        row, column = self._split(place)
        return self._joined(row, column // self.kept * self.map.group)

    def entry(self, place: Vector) -> Vector:
        """The place of the metadata entry with the code of an element's group."""
        row, group = self._group(place)
        half, _ = self.map.entry(row % METADATA_ROWS, group % GROUPS)
        return self._joined(row // METADATA_ROWS, group // GROUPS * WORD_ENTRIES + half)

    def shift(self, place: Vector) -> int:
        """The bits of the entry below the code of an element's group."""
        row, group = self._group(place)
        return CODE_BITS * self.map.entry(row % METADATA_ROWS, group % GROUPS)[1]

    def index(self, place: Vector) -> int:
        """The index of an element in its group."""
        return self._split(place)[1] % self.map.group

    def number(self, place: Vector) -> int:
        """The index of a kept value in its group."""
        return self._split(place)[1] % self.kept

    @property
    def together(self) -> int:
        """The number of neighbours along K whose codes are in one entry."""
        return self.map.group * ENTRY_CODES

    @property
    def kept(self) -> int:
        """The number of kept values in a group."""
        return self.map.group // KEPT

    def values(self, layout: Layout) -> Layout:
        """The layout of the kept values. Raises ValueError if a thread has only one element of a group."""
        self._check(layout, PAIR)
        inside = tuple(self._joined(0, 1 << bit) for bit in range(self.kept.bit_length() - 1))
        return _moved(layout, self._halved(layout.shape), self.value, inside)

    def dense(self, layout: Layout) -> Layout:
        """The layout of a dense tile, from the layout of its kept values. Raises ValueError if threads share a group."""
        self._check(layout, self.kept)
        row, column = self._split(layout.shape)
        inside = tuple(self._joined(0, 1 << bit) for bit in range(self.map.group.bit_length() - 1))
        return _moved(layout, self._joined(row, column * KEPT), self.first, inside)

    def entries(self, layout: Layout, shape: Sequence[int]) -> Layout:
        """The layout of the tile's metadata entries.

        If a tile has only a part of a word, a thread also has the entries without a column of the tile.
        """
        reached = set(map(self.entry, layout.register + layout.thread))
        steps = (self._joined(0, 1 << bit) for bit in range(shape[self.columns].bit_length() - 1))
        return _moved(layout, tuple(shape), self.entry, tuple(step for step in steps if step not in reached))

    def _check(self, layout: Layout, together: int) -> None:
        if any(0 < self._split(step)[1] < together for step in layout.thread):
            raise RuleError(f"a thread has {together} neighbours along K, got {list(layout.thread)}")

    def _halved(self, shape: Vector) -> Vector:
        row, column = self._split(shape)
        return self._joined(row, column // KEPT)

    def _split(self, place: Vector) -> tuple[int, int]:
        return place[1 - self.columns], place[self.columns]

    def _joined(self, row: int, column: int) -> Vector:
        return (row, column) if self.columns else (column, row)

    def _group(self, place: Vector) -> tuple[int, int]:
        row, column = self._split(place)
        return row, column // self.map.group


def _moved(layout: Layout, shape: Vector, move: Callable[[Vector], Vector], further: Steps) -> Layout:
    """A layout with its steps mapped by `move`, and with further steps of registers."""
    register, lane, warp = (tuple(map(move, steps)) for steps in (layout.register, layout.lane, layout.warp))
    return Layout(shape, further + tuple(step for step in register if any(step)), lane, warp)
