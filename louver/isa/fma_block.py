"""Products on CUDA cores: blocks of sums in the registers of a warpgroup, with `fma.rn.f32`.

The table shows lanes l for the 16 rows of a warp; warp w holds rows 16w … 16w+15. In a block of 128 columns, a lane
also has the same columns plus 64:

    rows                       columns 0 … 3   4 … 7   8 … 11   …   60 … 63
    0 … 3 and  8 … 11          l = 0           2       4            30
    4 … 7 and 12 … 15          l = 1           3       5            31

Narrower blocks have fewer lanes side by side, and more below each other: in 16 columns, lane l has rows l mod 8 and l
mod 8 + 8. A lane reads four columns of the dense operand in one 16-byte load; neighbouring lanes read neighbouring
pieces. As in `wgmma`, rows r and r + 8 belong to one lane, so a gated product finds both sums there. With several
blocks, each warp has neighbouring rows of the tile: block b of warp w has 16 rows from 16 · (blocks · w + b)
(`Lowering.row_steps`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from louver.isa.fragments import Fragment
from louver.isa.rule import RuleError

LANE_COLUMNS = 4
"""Neighbouring columns of a lane: 16 bytes of f32."""

STEPS = (16, 32)
"""Elements of K in a step: a line of 64 or 128 bytes."""

COLUMNS = 64
"""Most columns that the lanes of a warp have side by side."""

WIDTHS = (16, 32, 64, 128)
"""Columns of a block. Wider blocks spill registers."""


@dataclass(frozen=True, slots=True)
class FmaBlock:
    """D[64, n] = A[64, k] B[k, n] + D of f32. Each fma rounds once.

    n: columns. a, b, d: element types. Raises ValueError if n is not in `WIDTHS`.
    """

    n: int

    a: ClassVar[str] = "f32"
    b: ClassVar[str] = "f32"
    d: ClassVar[str] = "f32"
    sparse: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.n not in WIDTHS:
            raise RuleError(
                f"products on CUDA cores have {', '.join(map(str, WIDTHS))} columns, got {self.n}: use a tile of these"
            )

    @property
    def lane_columns(self) -> int:
        return LANE_COLUMNS * max(1, self.n // COLUMNS)

    @property
    def d_fragment(self) -> Fragment:
        """The sums in the registers of a warpgroup."""
        wide = min(self.n, COLUMNS)
        # Neighbouring rows of a lane among the first eight.
        own = wide // 16
        across = tuple((0, step) for step in (4, 8, 16, 32) if step < wide)
        down = tuple((step, 0) for step in (1, 2, 4) if step >= own)
        element = ((0, 1), (0, 2), *((step, 0) for step in (1, 2) if step < own), (8, 0), (0, COLUMNS))
        return Fragment(f"D fma 64x{self.n}", self.n, 32, (*down, *across, (16, 0), (32, 0)), element)
