"""Side effects of operations, and operations that are defined for all operands."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import Operation
from xdsl.traits import is_side_effect_free

from louver.analysis.integers import constant_everywhere
from louver.ir.arith import DIVISIONS
from louver.ir.tile.types import element_of

_SHIFTS = (arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp)


def has_no_effect(op: Operation) -> bool:
    """Whether an operation only computes results."""
    # xDSL lacks the trait on this operation.
    return is_side_effect_free(op) or isinstance(op, arith.RemUIOp)


def takes_any(op: Operation) -> bool:
    """Whether an operation is defined for all operands. Divisors and shift counts must be suitable constants."""
    if isinstance(op, DIVISIONS):
        by = constant_everywhere(op.rhs)
        return by is not None and by > 0
    if isinstance(op, _SHIFTS):
        by, element = constant_everywhere(op.rhs), element_of(op.rhs.type)
        return by is not None and isinstance(element, FixedBitwidthType) and 0 <= by < element.bitwidth
    return True
