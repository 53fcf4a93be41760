"""Runs: neighbouring elements of a tile whose addresses or numbers differ by one step, by induction over a kernel's loops."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, IntegerType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import constant_everywhere, constant_integer
from louver.analysis.passages import came_from
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, ExtUIOp, TruncIOp
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.types import as_tensor, element_of, memory_bytes, tensor_of
from louver.isa.async_copy import CopyBytes

LOADED = 16
"""The power of two that is guessed to divide a number that is loaded: the most elements that one access moves."""

WHOLE = 1 << 32
"""The power of two that counts as the divisor of 0."""

CONTIGUITY = "tt.contiguity"
"""The attribute with the lengths of blocks of neighbours that the user promises, one for each dimension (`tl.max_contiguous`)."""

_DIVISIONS = (arith.DivSIOp, arith.DivUIOp, arith.FloorDivSIOp, arith.ShRUIOp, arith.ShRSIOp)
_RESTS = (arith.RemSIOp, arith.RemUIOp)


@dataclass(frozen=True, slots=True)
class Run:
    """The values of a block of neighbours: each is `step` more than the one before.

    multiple: a power of two that divides the first value.
    """

    step: int
    multiple: int

    @classmethod
    def of(cls, number: int) -> Run:
        """A block in which all values are `number`."""
        return cls(0, power(number))

    def meets(self, other: Run) -> Run | None:
        """The facts that hold for both; None if the steps differ."""
        return Run(self.step, min(self.multiple, other.multiple)) if self.step == other.step else None


def power(number: int) -> int:
    """The largest power of two that divides a number, at most `WHOLE`."""
    return min(number & -number, WHOLE) if number else WHOLE


Key = tuple[SSAValue, int, int]
"""A value, a dimension, and the length of blocks along that dimension."""


class Runs:
    """Finds the runs of a function's integers and pointers, by induction over its loops.

    multiples: powers of two that divide the arguments. own: remainders that count as their dividends.
    sure: if given, numbers that are loaded, and quotients, are guessed to be multiples of `LOADED`. `sure` knows the same without the
    guess.
    What follows from the guess is only the alignment of addresses: that neighbours follow one another, and have one mask, is sure.
    """

    def __init__(
        self, multiples: Mapping[SSAValue, int], own: Collection[Operation] = (), sure: Runs | None = None
    ) -> None:
        self.multiples, self.own, self.sure = multiples, own, sure
        self._known: dict[Key, Run | None] = {}

    def guessing(self) -> Runs:
        """The same, with the guess about loaded numbers."""
        return Runs(self.multiples, self.own, self)

    def knowing(self, multiples: Mapping[SSAValue, int]) -> Runs:
        """The same with further multiples of arguments."""
        return Runs({**self.multiples, **multiples}, self.own)

    def chunk(self, load: tt.LoadOp, dimension: int, masked: int = 0) -> int:
        """The largest number of bytes along a dimension that one copy of a load may move; 0 if there is no such copy.

        masked: elements that have one mask; 0 if all of the copy have it.
        """
        tensor = tensor_of(load.ptr)
        assert isinstance(tensor.element_type, tt.PointerType)
        size = memory_bytes(tensor.element_type.pointee)
        for bytes_ in sorted(get_args(CopyBytes), reverse=True):
            count = bytes_ // size
            if count < 1 or tensor.get_shape()[dimension] % count:
                continue
            if self.moves(load, dimension, count, masked):
                return bytes_
        return 0

    def moves(self, op: tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp, dimension: int, count: int, masked: int = 0) -> bool:
        """Whether one access may move each aligned block of `count` neighbours along a dimension. masked: as in `chunk`."""
        pointer = tensor_of(op.ptr).element_type
        assert isinstance(pointer, tt.PointerType)
        size, run = memory_bytes(pointer.pointee), self.of(op.ptr, dimension, count)
        # The address of a single element is aligned to its type.
        aligned = count == 1 or (run is not None and run.step == size and run.multiple % (size * count) == 0)
        return aligned and (op.mask is None or self.same(op.mask, dimension, masked or count))

    def of(self, value: SSAValue, dimension: int, count: int) -> Run | None:
        """The run of each aligned block of `count` neighbours along a dimension of a tile; None if they are not a run.

        A scalar has the same value in each block.
        """
        key = (value, 0, 1) if as_tensor(value.type) is None else (value, dimension, count)
        if key not in self._known:
            self._known[key] = self._found(*key)
        return self._known[key]

    def same(self, value: SSAValue, dimension: int, count: int) -> bool:
        """Whether conditions are equal within each aligned block of neighbours."""
        owner = value.owner
        if as_tensor(value.type) is None or count == 1:
            return True
        if self.sure is not None:
            return self.sure.same(value, dimension, count)
        match owner:
            case arith.ConstantOp():
                return constant_integer(value) is not None
            case tt.SplatOp():
                return True
            case tt.ReshapeOp():
                inner = in_line(owner, dimension, count)
                return inner is not None and self.same(owner.src, inner, count)
            case tt.ExpandDimsOp(src=source) | tt.BroadcastOp(src=source) | tt.TransOp(src=source):
                inner = inside(owner, dimension)
                return inner is None or self.same(source, inner, count)
            case arith.AndIOp() | arith.OrIOp() | arith.XOrIOp():
                return all(self.same(each, dimension, count) for each in owner.operands)
            case CmpiOp(lhs=left, rhs=right):
                return self._compared(owner.name_of_predicate[-2:], (left, right), dimension, count)
            case _:
                return False

    def _compared(self, predicate: str, sides: tuple[SSAValue, SSAValue], dimension: int, count: int) -> bool:
        left, right = (self.of(each, dimension, count) for each in sides)
        if left is None or right is None:
            return False
        if left.step == right.step == 0:
            return True
        # The block begins at a multiple of its length. So a bound that is also a multiple is above all of it or none of
        # it.
        moving, fixed = (left, right) if predicate in ("lt", "ge") else (right, left)
        compares = predicate in ("lt", "ge", "gt", "le") and fixed.step == 0 and moving.step > 0
        return compares and _stays(moving, count) and fixed.multiple % (moving.step * count) == 0

    def _found(self, value: SSAValue, dimension: int, count: int) -> Run | None:
        owner = value.owner
        if isinstance(owner, Block):
            return self._argument(owner, value, dimension, count)
        run = self._of_operation(owner, value, dimension, count)
        # A single element is always a run.
        return run or (Run(0, 1) if count == 1 else None)

    def _argument(self, block: Block, value: SSAValue, dimension: int, count: int) -> Run | None:
        loop = block.parent_op()
        assert isinstance(value, BlockArgument)
        if isinstance(loop, scf.ForOp):
            if value.index == 0:
                lower, step = (self.of(each, dimension, count) for each in (loop.lb, loop.step))
                return lower and step and lower.meets(step)
            return self._carried(value, dimension, count)
        return Run(0, self.multiples.get(value, 1)) if count == 1 else None

    def _carried(self, value: SSAValue, dimension: int, count: int) -> Run | None:
        """The run of a carried value: the facts of its first value, weakened until each iteration keeps them
        (induction).
        """
        first, next_ = came_from(value)
        found = self.of(first, dimension, count)
        while found is not None:
            known = dict(self._known)
            self._known[value, dimension, count] = found
            following = self.of(next_, dimension, count)
            after = following and found.meets(following)
            if after == found:
                break
            self._known, found = known, after
        return found

    def _of_operation(self, op: Operation, value: SSAValue, dimension: int, count: int) -> Run | None:
        match op:
            case arith.ConstantOp():
                number = constant_integer(value)
                return None if number is None else Run.of(number)
            case tt.MakeRangeOp():
                start = power(op.start.value.data)
                return (
                    Run(1, min(start, count))
                    if count > 1
                    else Run(0, 1 if op.result.type.get_shape()[0] > 1 else start)
                )
            case arith.RemSIOp() if op in self.own:
                return self.of(op.lhs, dimension, count)
            case tt.SplatOp():
                return self.of(op.src, 0, 1)
            case tt.ExpandDimsOp() | tt.BroadcastOp() | tt.TransOp():
                inner = inside(op, dimension)
                return self.of(op.src, 0, 1) if inner is None else self.of(op.src, inner, count)
            case tt.ReshapeOp():
                inner = in_line(op, dimension, count)
                return None if inner is None else self.of(op.src, inner, count)
            case tt.LoadOp() if self.sure is not None and isinstance(value.type, IntegerType):
                return Run(0, LOADED)
            case scf.ForOp() | scf.IfOp():
                left, right = (self.of(each, dimension, count) for each in came_from(value))
                return left and right and left.meets(right)
            case SelectOp(cond=condition, lhs=left, rhs=right):
                one, other = self.of(left, dimension, count), self.of(right, dimension, count)
                return one.meets(other) if one and other and self.same(condition, dimension, count) else None
            case _ if op.operands and has_no_effect(op) and _by_element(op):
                runs = [run for each in op.operands if (run := self.of(each, dimension, count)) is not None]
                return self._computed(op, runs, dimension, count) if len(runs) == len(op.operands) else None
            case _:
                return None

    def _computed(self, op: Operation, runs: Sequence[Run], dimension: int, count: int) -> Run | None:
        """The run of the result of an operation on elements, from the runs of its operands."""
        first, last = runs[0], runs[-1]
        multiple = min(first.multiple, last.multiple)
        if self.sure is not None and first.step and isinstance(op, (*_RESTS, *_DIVISIONS)):
            return self.sure.of(op.results[0], dimension, count)
        match op:
            case arith.AddiOp():
                return Run(first.step + last.step, multiple)
            case arith.SubiOp():
                return Run(first.step - last.step, multiple)
            case arith.MuliOp():
                return self._product(op, first, last)
            case arith.AndIOp() if first.step == last.step == 0:
                return Run(0, max(first.multiple, last.multiple))
            case tt.AddPtrOp():
                pointer = element_of(op.ptr.type)
                assert isinstance(pointer, tt.PointerType)
                size = memory_bytes(pointer.pointee)
                if not _stays(last, count):
                    return None
                return Run(first.step + last.step * size, min(first.multiple, power(last.multiple * size)))
            case ExtSIOp() | ExtUIOp():
                return first if _stays(first, count) else None
            case TruncIOp() | arith.IndexCastOp():
                return first
            case _ if isinstance(op, _RESTS):
                # A block of neighbours wraps as a whole if the divisor is a multiple of the block.
                whole = first.step == 0 or (_stays(first, count) and last.multiple % (first.step * count) == 0)
                if last.step or not whole or not (first.step == 0 or wraps_whole(op) >= count):
                    return None
                return Run(first.step, multiple)
            case _ if isinstance(op, _DIVISIONS):
                return self._quotient(op, first, last, dimension, count)
            case arith.MinSIOp() | arith.MaxSIOp() | arith.MinUIOp() | arith.MaxUIOp():
                return Run(0, multiple) if first.step == last.step == 0 else None
            case _:
                return Run(0, 1) if all(run.step == 0 for run in runs) else None

    def _product(self, op: arith.MuliOp, first: Run, last: Run) -> Run | None:
        multiple = min(first.multiple * last.multiple, WHOLE)
        for run, by in ((first, op.rhs), (last, op.lhs)):
            factor = constant_everywhere(by)
            if factor is not None:
                return Run(run.step * factor, multiple)
        return Run(0, multiple) if first.step == last.step == 0 else None

    def _quotient(self, op: Operation, first: Run, last: Run, dimension: int, count: int) -> Run | None:
        by, whole, added = constant_everywhere(op.operands[1]), first.multiple, op.operands[0].owner
        if first.step and last.step == 0 and _stays(first, count) and counts(op.operands[0]):
            # A whole block is between two multiples of the divisor, which may be an argument.
            return Run(0, 1) if _divisor(op, by, last) % (first.step * count) == 0 else None
        if first.step or last.step:
            return None
        unknown = 1 if self.sure is None else LOADED
        if by is None or by < 1:
            return Run(0, unknown)
        by = 1 << by if isinstance(op, arith.ShRUIOp | arith.ShRSIOp) else by
        if isinstance(op, arith.DivUIOp) and isinstance(added, arith.AddiOp):
            # An addend below the divisor does not change the quotient if the other one is a multiple of the divisor.
            more, before = constant_everywhere(added.rhs), self.of(added.lhs, dimension, count)
            if more is not None and 0 <= more < by and before is not None and before.step == 0:
                whole = max(whole, before.multiple)
        return Run(0, whole // by if whole % by == 0 else unknown)


def _stays(run: Run, count: int) -> bool:
    """Whether the values of a block are in one aligned block of integers. They then do not wrap within the block."""
    return run.step == 0 or (run.step > 0 and run.step & (run.step - 1) == 0 and run.multiple % (run.step * count) == 0)


def _divisor(op: Operation, by: int | None, divisor: Run) -> int:
    """A power of two between whose multiples quotients of numbers that are at least 0 are equal. by: the divisor, if it is a constant."""
    match op:
        case arith.ShRUIOp() | arith.ShRSIOp():
            return 1 if by is None or by < 0 else 1 << by
        case arith.FloorDivSIOp() if by is None or by < 0:
            # The quotient by a negative number changes behind its multiples.
            return 1
        case _:
            return divisor.multiple


def inside(op: Operation, dimension: int) -> int | None:
    """The dimension of the source that becomes `dimension` of the result; None if the source has one element along it."""
    match op:
        case tt.ExpandDimsOp():
            axis = op.axis.value.data
            return None if dimension == axis else dimension - (dimension > axis)
        case tt.TransOp():
            return int(list(op.order.get_values())[dimension])
        case tt.BroadcastOp():
            return None if tensor_of(op.src).get_shape()[dimension] == 1 else dimension
        case _:
            raise AssertionError(op.name)


def in_line(op: tt.ReshapeOp, dimension: int, count: int) -> int | None:
    """The last dimension of the source, if aligned blocks of neighbours along `dimension`, the last one, are such blocks there too."""
    before, after = (tensor_of(each).get_shape() for each in (op.src, op.result))
    whole = dimension == len(after) - 1 and before[-1] % count == after[-1] % count == 0
    return len(before) - 1 if whole else None


def _by_element(op: Operation) -> bool:
    """Whether an operation computes elements independently, on tiles of one shape."""
    tiles = [tensor.get_shape() for value in (*op.operands, *op.results) if (tensor := as_tensor(value.type))]
    return not op.regions and len(op.results) == 1 and len(set(tiles)) <= 1


def wraps_whole(op: Operation) -> int:
    """The longest block of neighbours in which a remainder has no other jump than at multiples of the divisor: a power of two. The
    remainder of a negative number jumps one element later, unless the user promises neighbours.
    """
    if isinstance(op, arith.RemUIOp) or counts(op.operands[0]):
        return WHOLE
    promise = op.attributes.get(CONTIGUITY)
    if not isinstance(promise, DenseIntOrFPElementsAttr) or len(together := list(promise.get_values())) != 1:
        return 1
    return power(int(together[0]))


def counts(value: SSAValue) -> bool:
    """Whether integers are known to be at least 0: program numbers, ranges, constants, and their sums and products."""
    match value.owner:
        case tt.MakeRangeOp() | tt.GetProgramIdOp() | tt.GetNumProgramsOp():
            return True
        case arith.ConstantOp():
            return (constant_integer(value) or 0) >= 0
        case Block() as block:
            loop = block.parent_op()
            return isinstance(loop, scf.ForOp) and value is block.args[0] and counts(loop.lb)
        case arith.AddiOp() | arith.MuliOp() | tt.SplatOp() | tt.BroadcastOp() | tt.ExpandDimsOp() | ExtSIOp() as op:
            return all(map(counts, op.operands))
        case arith.RemSIOp() | arith.DivSIOp() as op:
            return counts(op.lhs) and (isinstance(op, arith.RemSIOp) or counts(op.rhs))
        case _:
            return False
