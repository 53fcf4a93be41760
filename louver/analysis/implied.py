"""What conditions say of integers. Proves that one implies the bounds of a mask: `k < cdiv(K, BK) - 1` implies `lanes < K - k * BK`.

A condition gives polynomials that are below 0. A bound follows if it is at most a multiple of one of them, plus a
number that is less than the multiple. Sizes are at least 0, as for the iterations of a loop.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.affine import Affine, is_count
from louver.analysis.atoms import Lane
from louver.analysis.masks import Bound, read_mask
from louver.ir.comparisons import CmpiOp
from louver.ir.polynomial import ONE, Part, Polynomial
from louver.ir.refusal import UnsupportedKernelError

_OPPOSITES = {"slt": "sge", "sge": "slt", "sle": "sgt", "sgt": "sle", "eq": "ne", "ne": "eq"}


def implied(
    mask: SSAValue, condition: SSAValue, *, holds: bool, shape: Sequence[int], user: Operation, affine: Affine
) -> bool:
    """Whether a mask of a tile is true everywhere if a condition is `holds`."""
    try:
        bounds, facts = read_mask(affine, mask, user), facts_of(affine, condition, holds=holds)
    except UnsupportedKernelError:
        return False
    return all(bound.unsigned is None and _follows(bound, facts, shape) for bound in bounds)


def facts_at(affine: Affine, op: Operation) -> list[Polynomial]:
    """Polynomials that are below 0 where an operation runs, by the branches and the `while` loops around it."""
    found: list[Polynomial] = []
    while (parent := op.parent_op()) is not None:
        match parent:
            case scf.IfOp():
                found += facts_of(affine, parent.cond, holds=op.parent_region() is parent.true_region)
            case scf.WhileOp() if op.parent_region() is parent.after_region:
                found += _facts_of_loop(affine, parent)
            case _:
                pass
        op = parent
    return found


def _facts_of_loop(affine: Affine, loop: scf.WhileOp) -> list[Polynomial]:
    """The facts of a loop's condition, in terms of the values that it passes to the loop's body."""
    end = loop.before_region.block.last_op
    if not isinstance(end, scf.ConditionOp):
        return []
    passed: dict[Hashable, Hashable] = dict(zip(end.args, loop.after_region.block.args, strict=True))

    def leaf(atom: Hashable) -> Polynomial:
        return Polynomial.atom(passed.get(atom, atom))

    moved = [fact.over(leaf) for fact in facts_of(affine, end.condition, holds=True)]
    return [fact for fact in moved if fact is not None]


def facts_of(affine: Affine, condition: SSAValue, *, holds: bool) -> list[Polynomial]:
    """Polynomials that are below 0 if a condition is `holds`."""
    op = condition.owner
    if isinstance(op, arith.AndIOp if holds else arith.OrIOp):
        return [fact for each in op.operands for fact in facts_of(affine, each, holds=holds)]
    if not isinstance(op, CmpiOp) or op.name_of_predicate not in _OPPOSITES:
        return []
    predicate = op.name_of_predicate if holds else _OPPOSITES[op.name_of_predicate]
    left, right = affine.integer(op.lhs), affine.integer(op.rhs)
    match predicate:
        case "slt":
            return [left - right]
        case "sle":
            return [left - right - 1]
        case "sgt":
            return [right - left]
        case "sge":
            return [right - left - 1]
        case "eq":
            return [left - right - 1, right - left - 1]
        case _:
            # What is not its greatest value is below it.
            sides = (left, right), (right, left)
            return [one - other for one, other in sides if affine.last(one) == other]


def _follows(bound: Bound, facts: Sequence[Polynomial], shape: Sequence[int]) -> bool:
    """Whether a bound is below 0 in all lanes of a tile if all facts are below 0."""
    value = _greatest(bound.value, shape)
    if value is None:
        return False
    for fact in facts:
        for monomial, by in fact:
            times, rest = divmod(value.coefficient(monomial), by)
            if monomial == ONE or rest or times < 1:
                continue
            # The fact is at most -1, so that the bound is at most the rest minus `times`.
            left = _without_quotients(value - times * fact).constant
            if left is not None and left < times:
                return True
    left = _without_quotients(value).constant
    return left is not None and left < 0


def _greatest(value: Polynomial, shape: Sequence[int]) -> Polynomial | None:
    """The greatest value among the lanes of a tile; None if lanes are more than an addend."""
    for number, extent in enumerate(shape):
        lane = Polynomial.atom(Lane(number))
        ((monomial, _),) = lane
        factor = value.coefficient(monomial)
        value = value - factor * lane + max(0, factor * (extent - 1))
    return None if any(isinstance(leaf, Lane) for leaf in value.leaves) else value


def _without_quotients(value: Polynomial) -> Polynomial:
    """An upper bound in which multiples of a divisor times its quotient are replaced by the dividend."""
    found = Polynomial.number(0)
    for monomial, factor in value:
        part = next((atom for atom, power in monomial if isinstance(atom, Part) and power == 1), None)
        by = None if part is None or len(monomial) > 1 else part.by.constant
        if part is None or by is None or by < 1 or factor % by or not is_count(part.whole):
            found += Polynomial.of({monomial: factor})
        else:
            # The remainder is from 0 to the divisor minus 1.
            found += (part.whole - (0 if factor > 0 else by - 1)) * (factor // by)
    return found
