"""Side effects of operations, and operations that have a result for all operands."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import Operation, SSAValue
from xdsl.traits import is_side_effect_free

from louver.analysis.integers import constant_integer
from louver.ir.arith import ExtSIOp
from louver.ir.tile import BroadcastOp, ExpandDimsOp, SplatOp
from louver.ir.tile.types import as_tensor

_DIVISIONS = (
    *(arith.DivSIOp, arith.DivUIOp, arith.RemSIOp, arith.RemUIOp),
    *(arith.FloorDivSIOp, arith.CeilDivSIOp, arith.CeilDivUIOp),
)
_SHIFTS = (arith.ShLIOp, arith.ShRSIOp, arith.ShRUIOp)


def has_no_effect(op: Operation) -> bool:
    """Whether an operation only gives a result."""
    # xDSL does not say it of this one.
    return is_side_effect_free(op) or isinstance(op, arith.RemUIOp)


def takes_any(op: Operation) -> bool:
    """Whether an operation is defined whatever its operands are: no quotient, and no shift, but by a constant that allows it."""
    if isinstance(op, _DIVISIONS):
        by = _everywhere(op.rhs)
        return by is not None and by > 0
    if isinstance(op, _SHIFTS):
        by, tensor = _everywhere(op.rhs), as_tensor(op.rhs.type)
        element = op.rhs.type if tensor is None else tensor.element_type
        return by is not None and isinstance(element, FixedBitwidthType) and 0 <= by < element.bitwidth
    return True


def _everywhere(value: SSAValue) -> int | None:
    """The constant that an integer is, or each element of a tile; None if there is no such."""
    while isinstance(value.owner, SplatOp | BroadcastOp | ExpandDimsOp | ExtSIOp):
        value = value.owner.input if isinstance(value.owner, ExtSIOp) else value.owner.src
    return constant_integer(value)
