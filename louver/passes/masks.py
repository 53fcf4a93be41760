"""Masks as bounds: which size each dimension of a masked tile must stay below."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.ir.comparisons import CmpiOp
from louver.ir.tile import BroadcastOp, ExpandDimsOp, SplatOp, TransOp
from louver.passes.affine import Affine, renumbering
from louver.passes.atoms import moved
from louver.passes.integers import constant_integer
from louver.passes.polynomial import Polynomial
from louver.passes.refusal import unsupported


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` is below 0 wherever a mask is true; dimensions are numbered as the mask's."""

    value: Polynomial


def read_mask(affine: Affine, mask: SSAValue, user: Operation) -> list[Bound]:
    """The bounds that a mask is the conjunction of. Refuses masks that are no conjunction of upper bounds."""
    if constant_integer(mask) not in (None, 0):
        return []
    op = mask.owner
    match op:
        case arith.AndIOp():
            return read_mask(affine, op.lhs, op) + read_mask(affine, op.rhs, op)
        case BroadcastOp() | SplatOp():
            return read_mask(affine, op.src, op)
        case ExpandDimsOp() | TransOp():
            where = renumbering(op)
            return [Bound(moved(bound.value, where)) for bound in read_mask(affine, op.src, op)]
        case CmpiOp():
            low, high = affine.integer(op.lhs), affine.integer(op.rhs)
            match op.name_of_predicate:
                case "slt" | "ult":
                    return [Bound(low - high)]
                case "sgt" | "ugt":
                    return [Bound(high - low)]
                case "sle" | "ule":
                    return [Bound(low - high - Polynomial.number(1))]
                case "sge" | "uge":
                    return [Bound(high - low - Polynomial.number(1))]
                case _:
                    pass
        case _:
            pass
    culprit = op if isinstance(op, Operation) else user
    raise unsupported("a mask is made of upper bounds (offsets < size), joined by &", culprit)
