"""Records of kernels on windows."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, lcm
from typing import ClassVar, Final, Literal

from louver.formats.codes import index_bits
from louver.formats.dtypes import SPARSE_TYPES, ElementType, element_type
from louver.formats.pattern import Pattern
from louver.formats.select import Norm
from louver.library.streaming.record import BUSY_CTAS, COPYING_CTAS, Access, check_arrays, fits_thread

WORD_BYTES: Final = 4
"""Most bytes of a row in one access of a thread. The thread has a sum for each column of an access."""

AT_ONCE: Final = 8
"""Most blocks that a thread has in flight."""

REREAD_BYTES: Final = 160 * 1024
"""Bytes of an SM's tiles, if tiles are read twice. With this size, the tiles of all SMs stay in the L2 cache."""

ROWS: Final = (1 << 31) - 1
"""Most rows of a matrix."""


@dataclass(frozen=True, slots=True)
class Windowed:
    """A kernel on windows. A window has L rows; of each group of M vectors it keeps N.

    A tile has the rows of a window and some whole groups. A block of a thread is some rows of one column, or one row of
    some columns.

    kind: see `Streaming`.
    norm: the norm by which a kernel prunes: it keeps the vectors with the largest norms. A compressing kernel without a
        norm needs arrays that keep the pattern.
    source, out: the accesses to the dense arrays; None for an array that the kind does not have. If one array is
        accessed along columns, an access along rows is one element wide.
    exact: whether a checking kernel also lists groups with fewer than N vectors.
    """

    element: str
    pattern: Pattern
    kind: Literal["prune", "check", "compress", "dense", "take"]
    norm: Norm | None = None
    source: Access | None = None
    out: Access | None = None
    exact: bool = False
    min_ctas: ClassVar[int] = 1

    def __post_init__(self) -> None:
        element_type(self.element, SPARSE_TYPES)
        if fits_thread(self.pattern):
            raise ValueError(f"groups of {self.pattern} fit a thread, which another kernel uses")
        check_arrays(self.kind, self.source, self.out)
        if not {"prune": self.norm is not None, "compress": True}.get(self.kind, self.norm is None):
            raise ValueError(f"vectors are compared by a norm to be pruned, got {self.norm} for kind {self.kind}")
        size = self.type.bytes
        for access in self.accesses:
            whole = self.height * size % access.width == 0 if access.columns else access.width <= WORD_BYTES
            lone = not self.down or access.columns or access.width == size
            if access.width < size or not whole or not lone:
                raise ValueError(f"windows of {self.pattern} in {self.element} are not reached by {self.accesses}")

    @property
    def type(self) -> ElementType:
        """The element type."""
        return element_type(self.element)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The accesses to the dense arrays."""
        return tuple(access for access in (self.source, self.out) if access is not None)

    @property
    def height(self) -> int:
        """Rows of a whole window."""
        return min(self.pattern.length, ROWS)

    @property
    def down(self) -> bool:
        """Whether a block is some rows of one column."""
        return any(access.columns for access in self.accesses)

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return (
            max((access.width for access in self.accesses if access.columns), default=self.type.bytes)
            // self.type.bytes
        )

    @property
    def block_columns(self) -> int:
        """Columns of a block."""
        return 1 if self.down else min(access.width for access in self.accesses) // self.type.bytes

    @property
    def at_once(self) -> int:
        """Blocks that a thread has in flight."""
        words = max(1, self.block_rows * self.type.bytes // WORD_BYTES)
        return max(1, min(AT_ONCE // words, -(-self.height // self.block_rows)))

    @property
    def index_bits(self) -> int:
        """Bits of an index."""
        return index_bits(self.pattern)

    @property
    def _least_groups(self) -> int:
        """The least number of groups with whole blocks and whole bytes of indices."""
        n, m, across = self.pattern.n, self.pattern.m, self.block_columns
        return lcm(across // gcd(across, m), 8 // gcd(8, n * self.index_bits))

    @property
    def threads(self) -> int:
        """Threads of a CTA. Each thread has the columns of one block."""
        return 128 if self._least_groups * self.pattern.m <= 128 * self.block_columns else 256

    @property
    def groups(self) -> int:
        """Groups of a tile."""
        least = self._least_groups
        return self.threads * self.block_columns // (least * self.pattern.m) * least

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.groups * self.pattern.m

    @property
    def slots(self) -> int:
        """Kept columns of a tile."""
        return self.groups * self.pattern.n

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.height, self.columns

    @property
    def ctas_per_sm(self) -> int:
        """CTAs that share the tiles of an SM."""
        if self.kind in ("check", "dense"):
            return BUSY_CTAS
        tile = self.height * self.columns * self.type.bytes
        return max(COPYING_CTAS, min(BUSY_CTAS, REREAD_BYTES // tile))

    @property
    def counts(self) -> bool:
        """Whether the kernel has counters."""
        return self.kind in ("check", "dense") or (self.kind == "compress" and self.norm is None)
