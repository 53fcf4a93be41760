"""Columns of K that tensor cores sum before an addition in f32, as a dot requests."""

from __future__ import annotations

from louver.ir.refusal import unsupported
from louver.ir.tile import DotOp, element_name
from louver.ir.tile.types import tensor_of
from louver.isa.mma import FP8

EVERY_COLUMN = 1 << 30
"""Triton's default of `max_num_imprecise_acc` for a dot of 8-bit floats on Hopper."""


def promotion(dot: DotOp, element: str) -> int | None:
    """The dot's `max_num_imprecise_acc`; None if nothing is promoted: without it, with 0, and from `EVERY_COLUMN` on.
    None also for other types than 8-bit floats: only sums of those are less exact than their registers.
    """
    limit = 0 if dot.max_imprecise is None else dot.max_imprecise.value.data
    if limit < 0:
        raise unsupported("max_num_imprecise_acc is a number of columns of K, at least 0", dot)
    if element not in FP8 or not 0 < limit < EVERY_COLUMN:
        return None
    if element_name(tensor_of(dot.d).element_type) != "f32":
        raise unsupported("a dot with max_num_imprecise_acc has an f32 accumulator", dot, "sums are promoted to f32")
    return limit
