"""Computes the place of a lane's first element in a block of sums, from the fragment of the sums."""

from __future__ import annotations

from louver.compile.lower.products.state import Lowering
from louver.isa.instruction import LANES
from louver.ptx.module import Reg

LANE_BITS = LANES.bit_length() - 1


def first_row(low: Lowering) -> Reg:
    """Rows from the first of the warp's 16 rows to the lane's first row."""
    return _offset(low, 0)


def first_column(low: Lowering) -> Reg:
    """Columns from the first column of the tile to the lane's first column."""
    return _offset(low, 1)


def _offset(low: Lowering, axis: int) -> Reg:
    """The offset along an axis.

    The bits of the lane number that move along it are adjacent, and each moves twice as far as the last.
    """
    k = low.k
    steps = [step[axis] for step in low.kernel.unit.d_fragment.thread[:LANE_BITS]]
    begin = next(bit for bit, step in enumerate(steps) if step)
    count = sum(map(bool, steps))
    lane = k.and_(low.named["tid"], (1 << begin + count) - 1)
    index = k.shr(lane, begin) if begin else lane
    scale = steps[begin].bit_length() - 1
    return k.shl(index, scale) if scale else index
