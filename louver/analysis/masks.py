"""Masks as bounds: the size that the index of each dimension of a masked tile must stay below.

A mask that compares the number of a lane, not its index, stays while a loop moves its pointer by one tile a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import TypeAlias

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.affine import Affine, Elements, renumbering
from louver.analysis.atoms import (
    Iteration,
    Lane,
    Quotient,
    always_below,
    divided,
    holds_quotient,
    lanes,
    moved,
    only_quotient,
)
from louver.analysis.integers import constant_everywhere, constant_integer
from louver.analysis.own_numbers import upper_bound
from louver.ir.comparisons import CmpiOp
from louver.ir.polynomial import ONE, Polynomial
from louver.ir.refusal import UnsupportedKernelError, unsupported
from louver.ir.tile import BroadcastOp, ExpandDimsOp, SplatOp, TransOp


@dataclass(frozen=True, slots=True)
class Bound:
    """`value` is below 0 wherever a mask is true. Dimensions are numbered as in the mask.

    each: the parts of the bound, all below 0 with it: several if an index is compared with a minimum.
    unsigned: a number that is at least 0 too wherever the mask is true, because it is compared as unsigned; None if none is.
    """

    value: Polynomial
    each: tuple[Polynomial, ...]
    unsigned: Polynomial | None = None

    def within(self, shape: Sequence[int]) -> Polynomial:
        """The bound for a tile: the only part that its shape does not imply, else the whole."""
        wanted = [value for value in self.each if not _is_implied(value, shape)]
        return wanted[0] if len(wanted) == 1 else self.value

    def always(self, shape: Sequence[int]) -> bool:
        """Whether a tile's shape implies the bound. A number that may be negative is great where it is compared as unsigned."""
        if self.unsigned is not None:
            first = self.unsigned - sum(
                (Polynomial.atom(Lane(each)) for each in lanes(self.unsigned)), Polynomial.number(0)
            )
            if first.constant is None or first.constant < 0:
                return False
        return all(_is_implied(value, shape) for value in self.each)

    def moved(self, where: Callable[[int], int]) -> Bound:
        """The bound with renumbered dimensions."""
        unsigned = None if self.unsigned is None else moved(self.unsigned, where)
        return Bound(moved(self.value, where), tuple(moved(value, where) for value in self.each), unsigned)


def _is_implied(value: Polynomial, shape: Sequence[int]) -> bool:
    """Whether a number plus at most one lane of a tile is always below 0."""
    found = lanes(value)
    return len(found) == 1 and all(always_below(value, number, shape[number]) for number in found)


def read_mask(affine: Affine, mask: SSAValue, user: Operation, *, holds: bool = True) -> list[Bound]:
    """The bounds whose conjunction a mask is. Rejects masks with other conditions. holds: where it is true, or false."""
    return _bounds(mask, user, partial(_bound, affine), holds)


def some_bounds(affine: Affine, mask: SSAValue, user: Operation, *, holds: bool = True) -> list[Bound]:
    """The bounds among the conditions of a mask. The other conditions can only exclude more elements."""

    def bound(condition: SSAValue, user: Operation, holds: bool) -> list[Bound]:
        try:
            return _bound(affine, condition, user, holds)
        except UnsupportedKernelError:
            return []

    return _bounds(mask, user, bound, holds)


_Read: TypeAlias = Callable[[SSAValue, Operation, bool], list[Bound]]


def _bounds(mask: SSAValue, user: Operation, bound: _Read, holds: bool) -> list[Bound]:
    op = mask.owner
    match op:
        case arith.AndIOp() | arith.OrIOp() if isinstance(op, arith.AndIOp) is holds:
            return _bounds(op.lhs, op, bound, holds) + _bounds(op.rhs, op, bound, holds)
        case arith.XOrIOp() if constant_everywhere(op.rhs):
            return _bounds(op.lhs, op, bound, not holds)
        case BroadcastOp() | SplatOp():
            return _bounds(op.src, op, bound, holds)
        case ExpandDimsOp() | TransOp():
            where = renumbering(op)
            return [each.moved(where) for each in _bounds(op.src, op, bound, holds)]
        case _:
            return bound(mask, user, holds)


def _bound(affine: Affine, condition: SSAValue, user: Operation, holds: bool) -> list[Bound]:
    known = constant_integer(condition)
    if known is not None and bool(known) is holds:
        return []
    op = condition.owner
    if isinstance(op, CmpiOp):
        unsigned, found = op.name_of_predicate[0] == "u", upper_bound(op, holds=holds)
        # As an unsigned number, an index below 0 is above every size: what is below it is no bound of it.
        if found is not None and not (unsigned and lanes(affine.integer(found[1]))):
            return _below(affine, *found, op, unsigned=unsigned)
    culprit = op if isinstance(op, Operation) else user
    raise unsupported(
        "a mask must consist of upper bounds (offsets < size), joined by &",
        culprit,
        "write (rows[:, None] < M) & (columns[None, :] < K)",
    )


def _below(affine: Affine, low: SSAValue, high: SSAValue, more: int, op: Operation, *, unsigned: bool) -> list[Bound]:
    index, size = affine.integer(low), affine.integer(high) + more
    while (quotient := only_quotient(index)) is not None:
        # x // a < b where x < a * b.
        index, size = quotient.whole, size * quotient.by
    if any(_is_remainder(index, atom, size) for atom in index.atoms if isinstance(atom, Quotient)):
        return []
    if holds_quotient(index - size):
        raise unsupported("a mask of a tile that is divided must compare quotients or remainders with sizes", op)
    each = tuple(_reduced(index - each) for each in affine.least(size))
    return [Bound(_reduced(index - size), each, index if unsigned else None)]


def _is_remainder(index: Polynomial, quotient: Quotient, size: Polynomial) -> bool:
    """Whether an index is a remainder that is below `size`: x - x // b * b, for a `size` of b or more."""
    by = -index.factor(quotient)
    beyond = (size - by).constant
    return beyond is not None and beyond >= 0 and divided(index + by * Polynomial.atom(quotient), by) == quotient


def _reduced(value: Polynomial) -> Polynomial:
    """A number that is below 0 where `value` is, without a common factor of its terms: x - 1024 for 2 * x - 2047."""
    by = gcd(*(factor for term, factor in value if term != ONE)) if lanes(value) else 1
    whole = value - value.coefficient(ONE)
    return whole // by + value.coefficient(ONE) // by if by > 1 else value


Stepped = tuple[Polynomial, int]
"""A size that a loop goes through in steps of a number of elements."""


def moving(
    bounds: Sequence[Bound], pointer: Elements, shape: Sequence[int], affine: Affine
) -> tuple[list[Bound], list[Stepped]]:
    """The bounds of a load or store, where each that compares lanes with the size of its loop compares indices instead.

    Both are the same for a size that is at most one step or a multiple of it. Those sizes are the second result. Both are
    true in a loop that has only the whole steps of a size.
    """
    found, sizes = list[Bound](), list[Stepped]()
    for bound in bounds:
        loop = _loop(bound, pointer, shape, affine)
        if loop is None:
            found.append(bound)
            continue
        (number,) = lanes(bound.value)
        move = Polynomial.atom(Iteration(loop)) * shape[number]
        found.append(replace(bound, value=bound.value + move, each=(bound.value + move,), unsigned=None))
        size, extent = Polynomial.atom(Lane(number)) - bound.value, shape[number]
        if affine.times(loop) != size // extent:
            sizes.append((size, extent))
    return found, sizes


def _loop(bound: Bound, pointer: Elements, shape: Sequence[int], affine: Affine) -> scf.ForOp | None:
    """The only loop whose steps go through the size of a bound, and move the pointer but not the mask."""
    if len(lanes(bound.value)) != 1 or len(bound.each) != 1:
        return None
    (number,) = lanes(bound.value)
    size, extent = Polynomial.atom(Lane(number)) - bound.value, shape[number]
    if lanes(size) or any(isinstance(atom, Iteration) for atom in size.leaves):
        return None
    lane = Polynomial.atom(Lane(number))
    strides = [part for term in pointer.offset if (part := Polynomial(frozenset([term])).quotient(lane)) is not None]
    found: list[scf.ForOp] = []
    for loop in {atom.loop for atom in pointer.offset.atoms if isinstance(atom, Iteration)}:
        moves = [each * Polynomial.atom(Iteration(loop)) * extent for each in strides]
        goes_through = affine.times(loop) in (size.ceil(extent), size // extent)
        if moves and goes_through and all(move.terms <= pointer.offset.terms for move in moves):
            found.append(loop)
    return found[0] if len(found) == 1 else None
