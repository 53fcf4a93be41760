"""Loops over steps of K in which the next step reads what this one would read as many columns further on.

It is the next one of some steps that are taken at once. These may be within a block of a block-sparse matrix, whose number is
loaded: `k // 4` is one number for the steps `k` and `k + 1`, if two are taken at once from 0 on.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from louver.analysis.affine import Affine
from louver.analysis.atoms import Iteration, Lane
from louver.analysis.effects import has_no_effect
from louver.analysis.integers import constant_integer, is_zero, repeated, steps_of, without_extension
from louver.analysis.masks import some_bounds
from louver.analysis.passages import end_of
from louver.ir.arith import ExtSIOp, SIToFPOp
from louver.ir.comparisons import CmpiOp
from louver.ir.polynomial import Polynomial
from louver.ir.refusal import UnsupportedKernelError
from louver.ir.tile import (
    AddPtrOp,
    BroadcastOp,
    DecompressOp,
    ExpandDimsOp,
    FpToFpOp,
    LoadOp,
    MakeRangeOp,
    SplatOp,
    TransOp,
)
from louver.ir.tile.types import as_tensor

CASTS = (arith.ExtFOp, arith.TruncFOp, SIToFPOp, FpToFpOp, TransOp, DecompressOp)
"""Operations that keep zeros."""

_NONE = Polynomial.number(0)


class Change(NamedTuple):
    """What an integer or a pointer grows by along the columns of a step, and from one step to the next."""

    lane: Polynomial
    step: Polynomial


FIXED = Change(_NONE, _NONE)


def source_dimension(op: Operation, dimension: int) -> int:
    """The dimension of an operation's operand for one of its result. It is negative where the operand lacks it."""
    if isinstance(op, TransOp):
        return op.order.get_values()[dimension]
    if isinstance(op, ExpandDimsOp):
        axis = op.axis.value.data
        return -1 if dimension == axis else dimension - (dimension > axis)
    return dimension


@dataclass(slots=True)
class AlikeSteps:
    """The steps of a loop. columns: of a step. at_once: steps that are taken at once. carried: the dimension of columns of each
    tile that the loop carries, by its argument, as far as `are_alike` has found them.
    """

    loop: scf.ForOp
    columns: int
    at_once: int
    affine: Affine = field(default_factory=Affine)
    carried: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])

    def are_alike(self, value: SSAValue, dimension: int) -> bool:
        """Whether the next step of a dot's operand is this one, further on. Its columns are along `dimension`."""
        with suppress(UnsupportedKernelError):
            load = self._load(value, dimension)
            if load is None:
                return False
            op, along = load
            if op.mask is not None and not (self._keeps(op.mask, along) and (op.other is None or is_zero(op.other))):
                return False
            found = self._change(op.ptr, along)
            return found is not None and found.lane * self.columns == found.step
        return False

    def end(self, value: SSAValue, dimension: int) -> bool:
        """Whether a mask of a dot's operand excludes all columns behind the last step."""
        load, times = self._load(value, dimension), self.affine.times(self.loop)
        if load is None or load[0].mask is None or times is None:
            return False
        op, along = load
        read = Polynomial.atom(Lane(along)) + Polynomial.atom(Iteration(self.loop)) * self.columns
        ends = [read - bound.value for bound in some_bounds(self.affine, cast(SSAValue, op.mask), op)]
        return any(end.ceil(self.columns) == times for end in ends)

    def are_whole(self, steps: int) -> bool:
        """Whether the number of steps is a known multiple of `steps`."""
        # An end below the start is no step either way.
        begin, end, step = (self.affine.integer(each) for each in (self.loop.lb, self.loop.ub, self.loop.step))
        times = self.affine.times(self.loop)
        whole = (end - begin).quotient(step * steps) is not None
        return whole or (times is not None and times.quotient(Polynomial.number(steps)) is not None)

    def length(self) -> SSAValue | None:
        """The number of columns of all steps, if the loop begins at the first one."""
        step = constant_integer(self.loop.step)
        found = steps_of(self.loop.ub) if step == 1 else (self.loop.ub, step)
        if constant_integer(self.loop.lb) != 0 or found is None or found[1] != self.columns:
            return None
        return without_extension(found[0])

    def varies(self, value: SSAValue, dimension: int) -> bool:
        """Whether a value has an element for each column."""
        tensor = as_tensor(value.type)
        return tensor is not None and dimension >= 0 and tensor.get_shape()[dimension] == self.columns

    def is_inside(self, value: SSAValue) -> bool:
        """Whether a value is computed, or carried, in the loop."""
        owner = value.owner
        return (owner if isinstance(owner, Block) else owner.parent) is self.loop.body.block

    def _load(self, value: SSAValue, dimension: int) -> tuple[LoadOp, int] | None:
        """The load of a tile through pointers to elements, and the dimension of columns."""
        op = value.owner
        if isinstance(op, CASTS):
            return self._load(op.operands[0], source_dimension(op, dimension))
        loads = isinstance(op, LoadOp) and self.is_inside(value) and as_tensor(op.ptr.type) is not None
        return (op, dimension) if isinstance(op, LoadOp) and loads else None

    def _keeps(self, condition: SSAValue, dimension: int) -> bool:
        """Whether a condition of the next step is that of further columns of this one."""
        op = condition.owner
        match op:
            case CmpiOp():
                one, other = (self._change(each, dimension) for each in (op.lhs, op.rhs))
                if one is None or other is None:
                    return False
                return (one.lane - other.lane) * self.columns == one.step - other.step
            case arith.AndIOp() | arith.OrIOp():
                return all(self._keeps(each, dimension) for each in op.operands)
            case BroadcastOp() | ExpandDimsOp() | TransOp() | SplatOp():
                return self._keeps(op.operands[0], -1 if isinstance(op, SplatOp) else source_dimension(op, dimension))
            case _:
                return self._change(condition, dimension) == FIXED

    def _change(self, value: SSAValue, dimension: int) -> Change | None:
        """The change of a value; None if it is not the same one in each step and for each column."""
        inside, varies, op = self.is_inside(value), self.varies(value, dimension), value.owner
        if not inside and not varies:
            return FIXED
        match op:
            case Block():
                return self._carried(cast(BlockArgument, value), dimension) if inside else None
            case MakeRangeOp():
                return Change(Polynomial.number(1), _NONE)
            case arith.ConstantOp():
                return FIXED
            case arith.AddiOp() | AddPtrOp() | arith.SubiOp():
                one, other = (self._change(each, dimension) for each in op.operands)
                if one is None or other is None:
                    return None
                sign = -1 if isinstance(op, arith.SubiOp) else 1
                return Change(one.lane + other.lane * sign, one.step + other.step * sign)
            case arith.MuliOp():
                return self._product(op, dimension)
            case arith.DivSIOp() | arith.DivUIOp() if self._parts(op):
                return FIXED
            case arith.RemSIOp() | arith.RemUIOp() if self._parts(op):
                return self._change(op.lhs, dimension)
            case SplatOp():
                return self._change(op.src, -1)
            case ExtSIOp() | BroadcastOp() | ExpandDimsOp() | TransOp():
                return self._change(op.operands[0], source_dimension(op, dimension))
            case LoadOp(ptr=pointer, mask=None) if as_tensor(pointer.type) is None:
                return FIXED if self._change(pointer, -1) == FIXED else None
            case _ if has_no_effect(op) and not op.regions:
                return FIXED if all(self._change(each, dimension) == FIXED for each in op.operands) else None
            case _:
                return None

    def _parts(self, op: Operation) -> bool:
        """Whether an operation divides the loop's counter into blocks of whole numbers of steps that are taken at once."""
        number, step = self.loop.body.block.args[0], constant_integer(self.loop.step)
        by, begin = constant_integer(op.operands[1]), constant_integer(self.loop.lb)
        if without_extension(op.operands[0]) is not number or step is None or by is None or begin is None:
            return False
        whole = step * self.at_once
        return begin >= 0 < by and begin % whole == by % whole == 0

    def _product(self, op: arith.MuliOp, dimension: int) -> Change | None:
        for one, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
            found = self._change(other, dimension)
            if self._change(one, dimension) != FIXED or found is None:
                continue
            factor = Polynomial.number(1) if found == FIXED else self._number(one)
            return None if factor is None else Change(found.lane * factor, found.step * factor)
        return None

    def _number(self, value: SSAValue) -> Polynomial | None:
        """The number that all elements of a value are."""
        value = repeated(value)
        known = constant_integer(value)
        if known is not None:
            return Polynomial.number(known)
        return None if as_tensor(value.type) is not None else self.affine.integer(value)

    def _carried(self, argument: BlockArgument, dimension: int) -> Change | None:
        """The change of the loop's counter, or of a value that the loop carries and moves by one number."""
        if argument.index == 0:
            return Change(_NONE, self.affine.integer(self.loop.step))
        first = self._change(self.loop.iter_args[argument.index - 1], dimension)
        op = end_of(self.loop.body.block).operands[argument.index - 1].owner
        if (
            first is None
            or not isinstance(op, arith.AddiOp | AddPtrOp | arith.SubiOp)
            or op.operands[0] is not argument
        ):
            return None
        by = self._number(op.operands[1]) if self._change(op.operands[1], dimension) == FIXED else None
        if by is None or self.carried.setdefault(argument, dimension) != dimension:
            return None
        return Change(first.lane, by * (-1 if isinstance(op, arith.SubiOp) else 1))
