"""Gathered rows of bytes that the producer turns: from contiguous along N in memory to contiguous along K in the stage,
as `wgmma` reads them.

A *block* is 16 columns of four neighbouring rows of a list. A thread copies a block to shared memory that no other
thread accesses. When the copies are complete, it loads the block, turns 4×4 bytes at a time, and stores words of four
rows. In a *part* of a list's rows each thread has one block.

The copies of a step run while the threads turn the step before. The memory of a part is free for the next step as soon
as the part has been loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.isa.rule import RuleError
from louver.isa.swizzle import CHUNK
from louver.isa.targets import WARPGROUP_THREADS

ROWS = 4
"""Neighbouring rows of a list that a thread turns together. A word has one byte of each."""

WARP_PIECES = 4
"""Pieces of 16 bytes of a row that neighbouring lanes copy: two sectors."""

WARP_QUADS = 8
"""Groups of four rows that a warp copies together."""

PART_BYTES = WARPGROUP_THREADS * ROWS * CHUNK
"""Bytes of a part."""


@dataclass(frozen=True, slots=True)
class Turned:
    """The rows of a list in a stage: `k` rows of `n` bytes.

    Raises ValueError for sizes that threads cannot divide into blocks.
    """

    n: int
    k: int

    def __post_init__(self) -> None:
        if self.n % self.columns:
            raise RuleError(
                f"{WARPGROUP_THREADS} threads turn {ROWS} rows of {CHUNK} bytes each, {self.columns} columns of {self.k} rows, got tile_n "
                f"{self.n}: use a multiple of {self.columns}"
            )

    @property
    def groups(self) -> int:
        """Warps that copy the same columns, of different rows."""
        return self.k // (ROWS * WARP_QUADS)

    @property
    def columns(self) -> int:
        """Columns of a part."""
        return PART_BYTES // self.k

    @property
    def parts(self) -> int:
        """Blocks of a thread."""
        return self.n // self.columns
