"""Gathered rows that a producer turns: bytes lie along N in memory, and along K in the stage, where `wgmma` reads them.

A thread copies 16 columns of four neighbouring rows of a list, a *block*, to shared memory that no other thread touches. It loads the block when its
copies are complete, turns it 4×4 bytes at a time, and stores words of four rows. In a *part* of a list's rows each thread has one block. The
copies of a step's parts are under way while the step before is turned: a part's memory is free for the next step when it has been loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.isa.swizzle import CHUNK
from louver.isa.targets import WARPGROUP_THREADS

ROWS = 4
"""Neighbouring rows of a list that a thread turns together: bytes of a word."""

WARP_PIECES = 4
"""Pieces of 16 bytes of a row that neighbouring lanes copy: two sectors."""

WARP_QUADS = 8
"""Fours of rows that a warp copies together."""

PART_BYTES = WARPGROUP_THREADS * ROWS * CHUNK
"""Bytes of a part."""


@dataclass(frozen=True, slots=True)
class Turned:
    """A list's rows in a stage: `k` rows of `n` bytes. Raises ValueError for sizes of which threads have no whole blocks."""

    n: int
    k: int

    def __post_init__(self) -> None:
        if self.n % self.columns:
            raise ValueError(
                f"{WARPGROUP_THREADS} threads turn {ROWS} rows of {CHUNK} bytes each, {self.columns} columns of {self.k} rows, got tile_n "
                f"{self.n}: use a multiple of {self.columns}"
            )

    @property
    def groups(self) -> int:
        """Warps that have other rows of the same columns."""
        return self.k // (ROWS * WARP_QUADS)

    @property
    def columns(self) -> int:
        """Columns of a part."""
        return PART_BYTES // self.k

    @property
    def parts(self) -> int:
        """Blocks of a thread."""
        return self.n // self.columns
