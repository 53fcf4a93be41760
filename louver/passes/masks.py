"""Masks as bounds: which size each dimension of a masked tile must stay below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.ir.comparisons import CmpiOp
from louver.ir.tile import BroadcastOp, ExpandDimsOp, SplatOp, TransOp
from louver.passes.affine import Affine, renumbering
from louver.passes.atoms import moved
from louver.passes.integers import constant_integer
from louver.passes.polynomial import Polynomial
from louver.passes.refusal import UnsupportedKernelError, unsupported


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` is below 0 wherever a mask is true; dimensions are numbered as the mask's."""

    value: Polynomial


def read_mask(affine: Affine, mask: SSAValue, user: Operation) -> list[Bound]:
    """The bounds that a mask is the conjunction of. Refuses masks that are no conjunction of upper bounds."""
    return _bounds(mask, user, partial(_bound, affine))


def some_bounds(affine: Affine, mask: SSAValue, user: Operation) -> list[Bound]:
    """The bounds among the conditions of a mask. The other conditions can only leave out more."""

    def bound(condition: SSAValue, user: Operation) -> list[Bound]:
        try:
            return _bound(affine, condition, user)
        except UnsupportedKernelError:
            return []

    return _bounds(mask, user, bound)


def _bounds(mask: SSAValue, user: Operation, bound: Callable[[SSAValue, Operation], list[Bound]]) -> list[Bound]:
    op = mask.owner
    match op:
        case arith.AndIOp():
            return _bounds(op.lhs, op, bound) + _bounds(op.rhs, op, bound)
        case BroadcastOp() | SplatOp():
            return _bounds(op.src, op, bound)
        case ExpandDimsOp() | TransOp():
            where = renumbering(op)
            return [Bound(moved(each.value, where)) for each in _bounds(op.src, op, bound)]
        case _:
            return bound(mask, user)


def _bound(affine: Affine, condition: SSAValue, user: Operation) -> list[Bound]:
    if constant_integer(condition) not in (None, 0):
        return []
    op = condition.owner
    if isinstance(op, CmpiOp):
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
    culprit = op if isinstance(op, Operation) else user
    raise unsupported("a mask is made of upper bounds (offsets < size), joined by &", culprit)
