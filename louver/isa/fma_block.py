"""Products on CUDA cores: a block of sums that the threads of a warpgroup hold and add to by `fma.rn.f32`.

Lane l of a warp, one warp's 16 rows; warp w holds rows 16w … 16w+15. Of 128 columns a lane has the same 64 further on, too:

    rows                       columns 0 … 3   4 … 7   8 … 11   …   60 … 63
    0 … 3 and  8 … 11          l = 0           2       4            30
    4 … 7 and 12 … 15          l = 1           3       5            31

Narrower blocks have fewer lanes side by side, and more of them below each other: of 16 columns lane l has rows l mod 8 and 8 + l mod 8.

So a lane reads four columns of the dense operand by one load of 16 bytes, and neighbouring lanes neighbouring pieces. Rows r and
r + 8 are one lane's, as with `wgmma`: a gated product finds both sums there. A warpgroup with several blocks gives each warp neighbouring
rows of the tile: block b of warp w has the 16 rows from 16 · (blocks · w + b) on (`Lowering.row_steps`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from louver.isa.fragments import Fragment

LANE_COLUMNS = 4
"""Neighbouring columns of a lane: 16 bytes of f32."""

STEPS = (16, 32)
"""Elements of K of a step: a line of 64 or 128 bytes."""

COLUMNS = 64
"""Columns that the lanes of a warp have side by side, at most."""

WIDTHS = (16, 32, 64, 128)
"""Columns of a block: more of them spill."""


@dataclass(frozen=True, slots=True)
class FmaBlock:
    """D[64, n] = A[64, k] B[k, n] + D of f32, each product and sum rounded once.

    n: columns. a, b, d: element types. Raises ValueError for another n than those of `WIDTHS`.
    """

    n: int

    a: ClassVar[str] = "f32"
    b: ClassVar[str] = "f32"
    d: ClassVar[str] = "f32"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.n not in WIDTHS:
            raise ValueError(
                f"products on CUDA cores have {', '.join(map(str, WIDTHS))} columns, got {self.n}: use a tile of these"
            )

    @property
    def lane_columns(self) -> int:
        """Columns of a lane."""
        return LANE_COLUMNS * max(1, self.n // COLUMNS)

    @property
    def d_fragment(self) -> Fragment:
        """The sums in the registers of a warpgroup."""
        wide = min(self.n, COLUMNS)
        # Of the first eight rows a lane has so many neighbours.
        own = wide // 16
        across = tuple((0, step) for step in (4, 8, 16, 32) if step < wide)
        down = tuple((step, 0) for step in (1, 2, 4) if step >= own)
        element = ((0, 1), (0, 2), *((step, 0) for step in (1, 2) if step < own), (8, 0), (0, COLUMNS))
        return Fragment(f"D fma 64x{self.n}", self.n, 32, (*down, *across, (16, 0), (32, 0)), element)
