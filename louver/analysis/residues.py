"""Integers that depend on one size, such as K // 64 and K % 64, for all values of the size at once. A size is step · q
+ r. For a fixed r, sums, multiples and quotients by the step are a multiple of q plus a constant. So two numbers for
each of the `step` remainders describe an integer for all sizes, and comparisons can be proved.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.ir import Block, SSAValue

from louver.analysis.integers import constant_integer, steps_of, whole_steps_of, without_extension
from louver.ir.arith import TruncIOp
from louver.ir.comparisons import CmpiOp


@dataclass(frozen=True, slots=True, eq=False)
class Residues:
    """slope · q + start for the size step · q + r, by r in range(step)."""

    slope: NDArray[np.int64]
    start: NDArray[np.int64]

    @classmethod
    def size(cls, step: int) -> Residues:
        """The size itself."""
        return cls(np.full(step, step, np.int64), np.arange(step))

    @classmethod
    def number(cls, value: int, step: int) -> Residues:
        return cls(np.zeros(step, np.int64), np.full(step, value, np.int64))

    def __add__(self, other: Residues) -> Residues:
        return Residues(self.slope + other.slope, self.start + other.start)

    def __sub__(self, other: Residues) -> Residues:
        return Residues(self.slope - other.slope, self.start - other.start)

    def times(self, factor: int) -> Residues:
        return Residues(self.slope * factor, self.start * factor)

    def divided(self, by: int, *, up: bool = False) -> Residues | None:
        """The quotient, rounded down or up. None for a negative number or a quotient that this form lacks."""
        if by < 1 or (self.slope % by).any() or not self.is_at_least(0):
            return None
        return Residues(self.slope // by, -(-self.start // by) if up else self.start // by)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Residues) and not (self - other).slope.any() and not (self - other).start.any()

    def __hash__(self) -> int:
        return hash((self.slope.tobytes(), self.start.tobytes()))

    def is_at_least(self, value: int, where: NDArray[np.bool_] | None = None) -> bool:
        """Whether it is at least `value` for all sizes of at least 1. where: only for sizes with these remainders."""
        low, _ = self.bounds
        return bool((low >= value)[slice(None) if where is None else where].all())

    @property
    def bounds(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The least and the greatest value by remainder, over all sizes of at least 1; may be infinite."""
        first = self.slope * (np.arange(len(self.slope)) == 0) + self.start
        return np.where(self.slope < 0, -np.inf, first), np.where(self.slope > 0, np.inf, first)

    def truth(self, predicate: str) -> NDArray[np.bool_] | None:
        """The result of a comparison with 0, by remainder. None if it differs between sizes with the same remainder."""
        low, high = self.bounds
        always, never = {
            "eq": ((low == 0) & (high == 0), (low > 0) | (high < 0)),
            "slt": (high < 0, low >= 0),
            "sle": (high <= 0, low > 0),
        }.get(_SAME.get(predicate, predicate), (low > high, low > high))
        if not (always | never).all():
            return None
        return never if predicate in _SAME else always


_SAME = {"ne": "eq", "sge": "slt", "sgt": "sle"}
"""Predicates that are the negation of another one."""


@dataclass(frozen=True, slots=True)
class ResidueReader:
    """Reads values that depend on `size` alone. size: None if only constants occur."""

    size: SSAValue | None
    step: int

    @classmethod
    def of(cls, values: Iterable[SSAValue], step: int) -> ResidueReader | None:
        """A reader for values that depend on at most one size, else None."""
        sizes = {leaf for value in values for leaf in _leaves(value)}
        return cls(next(iter(sizes), None), step) if len(sizes) < 2 else None

    def integer(self, value: SSAValue) -> Residues | None:
        constant = constant_integer(value)
        if constant is not None:
            return Residues.number(constant, self.step)
        value = without_extension(value)
        if value is self.size:
            return Residues.size(self.step)
        op = value.owner
        if isinstance(op, TruncIOp):
            return self._truncated(op)
        if isinstance(op, Block) or not isinstance(op, _INTEGERS):
            return None
        left, right, number = self.integer(op.lhs), self.integer(op.rhs), constant_integer(op.rhs)
        if left is None or right is None:
            return None
        match op:
            case arith.AddiOp():
                return left + right
            case arith.SubiOp():
                return left - right
            case arith.MuliOp():
                factor = constant_integer(op.lhs)
                if number is not None:
                    return left.times(number)
                return None if factor is None else right.times(factor)
            case arith.CeilDivSIOp():
                return None if number is None else left.divided(number, up=True)
            case arith.RemSIOp():
                quotient = None if number is None else left.divided(number)
                return None if number is None or quotient is None else left - quotient.times(number)
            case _:
                return None if number is None else left.divided(number)

    def _truncated(self, op: TruncIOp) -> Residues | None:
        """A number truncated to the size's type. A number from 0 to the size loses nothing."""
        found = self.integer(op.input)
        if found is None or self.size is None or self.size.type != op.result.type:
            return None
        return found if found.is_at_least(0) and (Residues.size(self.step) - found).is_at_least(0) else None

    def truth(self, value: SSAValue) -> NDArray[np.bool_] | None:
        """A comparison, by remainder."""
        op = value.owner
        if not isinstance(op, CmpiOp):
            return None
        left, right = self.integer(op.lhs), self.integer(op.rhs)
        return None if left is None or right is None else (left - right).truth(op.name_of_predicate)


def size_before(end: SSAValue, step: int) -> SSAValue | None:
    """The size of which an end leaves at most one step, and has only whole steps; None if there is none.

    Examples are `K // BK * BK`, `K - K % BK` and `(cdiv(K, BK) - 1) * BK`. The size is at least 1.
    """
    found = (whole for whole, by in _divided(end) if by == step and _ends_before(end, 1, whole, step))
    return next(found, None)


def size_of_steps(count: SSAValue) -> tuple[SSAValue, int] | None:
    """The size and the step of a number of steps, if they leave at most one step of the size; else None.

    Examples are `K // BK` and `cdiv(K, BK) - 1`.
    """
    return next(((whole, by) for whole, by in _divided(count) if _ends_before(count, by, whole, by)), None)


def _ends_before(value: SSAValue, factor: int, whole: SSAValue, step: int) -> bool:
    found = ResidueReader(whole, step).integer(value)
    if found is None or not found.is_at_least(0):
        return False
    gone = found.times(factor)
    steps, left = gone.divided(step), Residues.size(step) - gone
    return steps is not None and steps.times(step) == gone and left.is_at_least(0) and left.times(-1).is_at_least(-step)


def _divided(value: SSAValue) -> list[tuple[SSAValue, int]]:
    """The sizes that a sum or product of numbers divides into steps."""
    value = without_extension(value)
    match value.owner:
        case arith.AddiOp(lhs=one, rhs=other) | arith.SubiOp(lhs=one, rhs=other) | arith.MuliOp(lhs=one, rhs=other):
            return [*_divided(one), *_divided(other)]
        case arith.RemSIOp(lhs=whole, rhs=by):
            step = constant_integer(by)
            found = None if step is None or step < 1 else (whole, step)
        case _:
            found = steps_of(value) or whole_steps_of(value)
    return [] if found is None else [(without_extension(found[0]), found[1])]


_INTEGERS = (
    arith.AddiOp,
    arith.SubiOp,
    arith.MuliOp,
    arith.DivSIOp,
    arith.FloorDivSIOp,
    arith.CeilDivSIOp,
    arith.RemSIOp,
)


def _leaves(value: SSAValue) -> set[SSAValue]:
    """The sizes that a value depends on."""
    value = without_extension(value)
    op = value.owner
    if isinstance(op, TruncIOp):
        return _leaves(op.input)
    if isinstance(op, (*_INTEGERS, CmpiOp)):
        return _leaves(op.lhs) | _leaves(op.rhs)
    return set() if constant_integer(value) is not None else {value}
