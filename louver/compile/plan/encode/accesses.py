"""What loads and stores of a tile cost in a layout: which neighbours move together, and how many lines of memory a warp touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr
from xdsl.ir import BlockArgument, SSAValue

from louver.analysis.alignment import multiple_if
from louver.compile.plan.encode.anchors import memory_bits
from louver.compile.plan.encode.shared_access import SCHEDULERS
from louver.compile.plan.feeds.staged_operands import strides
from louver.ir.arith import ExtSIOp
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.splat import first_of, is_splat
from louver.ir.tile import (
    AddPtrOp,
    AtomicRMWOp,
    BroadcastOp,
    ExpandDimsOp,
    FuncOp,
    LoadOp,
    MakeRangeOp,
    PointerType,
    SplatOp,
    StoreOp,
)
from louver.ir.tile.layout import LANE_BITS, Layout, Vector
from louver.ir.tile.multiples import multiples_of
from louver.ir.tile.types import as_tensor, tensor_of
from louver.isa.memory import MAX_BYTES
from louver.isa.swizzle import BANK_LINE

SECTOR = 32
"""Bytes that memory moves at least. Two go to the L2 cache in the time of one line."""

OVERHEAD = 4
"""Instructions of an access: itself, its address and its mask."""

MOST_MULTIPLE = 64
"""What numbers are known to be multiples of, at most."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours of a tile in memory. along: their dimension, -1 where there are none. together: how many one access may move.
    size: bytes of an element.
    """

    along: int
    together: int
    size: int

    @classmethod
    def scattered(cls, op: LoadOp | StoreOp | AtomicRMWOp) -> Run:
        """Of an access whose elements are on lines of their own."""
        return cls(-1, 1, _size(op))

    def cost(self, layout: Layout) -> float:
        """Times that a warp touches a line, or two sectors, for all its registers."""
        steps = [_step(self.along, 1 << bit, layout) for bit in range(self.together.bit_length() - 1)]
        bits = next((number for number, step in enumerate(steps) if step not in layout.register), len(steps))
        places = [layout.of_thread(lane) for lane in range(1 << LANE_BITS)]
        lines, sectors = (len({self._part(place, each) for place in places}) for each in (BANK_LINE, SECTOR))
        count = len(layout.registers) >> bits
        return count * (max(lines, sectors / 2) + OVERHEAD / SCHEDULERS)

    def _part(self, place: Vector, length: int) -> Vector:
        return tuple(at * self.size // length if dimension == self.along else at for dimension, at in enumerate(place))

    def rows(self, like: Layout) -> Layout:
        """The tile in accesses that are as wide as they can be, eight lanes or so side by side; in the warps of `like` where they fit."""
        near = [_step(self.along, 1 << bit, like) for bit in range(like.shape[self.along].bit_length() - 1)]
        others = [dimension for dimension in reversed(range(len(like.shape))) if dimension != self.along]
        far = [
            _step(dimension, 1 << bit, like)
            for dimension in others
            for bit in range(like.shape[dimension].bit_length() - 1)
        ]
        inside = self.together.bit_length() - 1
        line = min(max(inside, (BANK_LINE // self.size).bit_length() - 1), inside + LANE_BITS)
        lane = near[inside:line]
        left = [*far, *near[line:]]
        apart = [*(step for step in left if step not in like.warp), *(step for step in left if step in like.warp)]
        lane += apart[: LANE_BITS - len(lane)]
        left = [step for step in left if step not in lane]
        warp: list[Vector] = [step if step in left else () for step in like.warp]
        left = [step for step in left if step not in warp]
        none = (0,) * len(like.shape)
        for number, step in enumerate(warp):
            if not step:
                warp[number] = left.pop(0) if left else none
        lane += [none] * (LANE_BITS - len(lane))
        return Layout(like.shape, (*near[:inside], *left), tuple(lane), tuple(warp))


def _step(dimension: int, by: int, layout: Layout) -> Vector:
    return tuple(by if axis == dimension else 0 for axis in range(len(layout.shape)))


def _size(op: LoadOp | StoreOp | AtomicRMWOp) -> int:
    return memory_bits(cast(PointerType, tensor_of(op.ptr).element_type).pointee) // 8


def run_of(op: LoadOp | StoreOp | AtomicRMWOp) -> Run | None:
    """The neighbours of an access; None where none are known."""
    found = strides(op.ptr)
    if found.count(1) != 1:
        return None
    along = found.index(1)
    size = _size(op)
    together = min(MAX_BYTES // size, tensor_of(op.ptr).get_shape()[along])
    while together > 1 and not (
        _multiple(op.ptr, along, together) % (together * size) == 0
        and (op.mask is None or _as_one(op.mask, along, together))
    ):
        together //= 2
    return Run(along, together, size)


def _multiple(value: SSAValue, along: int | None, together: int) -> int:
    """What divides integers, or addresses, at each place that is a multiple of `together` along a dimension; None: at every place."""
    owner = value.owner
    if as_tensor(value.type) is None:
        return _scalar_multiple(value)
    match owner:
        case MakeRangeOp():
            start = owner.start.value.data
            return 1 if along is None else _power(start | together)
        case SplatOp():
            return _scalar_multiple(owner.src)
        case arith.ConstantOp(value=DenseIntOrFPElementsAttr() as numbers) if is_splat(numbers):
            return _power(cast(int, first_of(numbers)))
        case BroadcastOp():
            stays = along is not None and tensor_of(owner.src).get_shape()[along] == 1
            return _multiple(owner.src, None if stays else along, together)
        case ExpandDimsOp():
            return _multiple(owner.src, _inner(owner, along), together)
        case ExtSIOp(input=inner):
            return _multiple(inner, along, together)
        case AddPtrOp():
            size = memory_bits(cast(PointerType, tensor_of(owner.ptr).element_type).pointee) // 8
            return min(_multiple(owner.ptr, along, together), _multiple(owner.offset, along, together) * size)
        case arith.MuliOp(lhs=lhs, rhs=rhs):
            return min(_multiple(lhs, along, together) * _multiple(rhs, along, together), MOST_MULTIPLE)
        case arith.AddiOp() | arith.SubiOp() | arith.RemSIOp() | arith.MinSIOp() | arith.MaxSIOp():
            return min(_multiple(each, along, together) for each in owner.operands)
        case SelectOp(lhs=lhs, rhs=rhs):
            return min(_multiple(each, along, together) for each in (lhs, rhs))
        case _:
            return 1


def _inner(op: ExpandDimsOp, along: int | None) -> int | None:
    """The dimension `along` before another one was added; None where it is that one."""
    axis = op.axis.value.data
    return None if along is None or along == axis else along - (along > axis)


def _power(number: int) -> int:
    return min(number & -number, MOST_MULTIPLE) if number else MOST_MULTIPLE


def _scalar_multiple(value: SSAValue) -> int:
    """Of a number that all elements have, or an address."""
    if isinstance(value.owner, AddPtrOp):
        size = memory_bits(cast(PointerType, value.type).pointee) // 8
        return min(_scalar_multiple(value.owner.ptr), _scalar_multiple(value.owner.offset) * size)
    of = MOST_MULTIPLE
    while of > 1:
        needs = multiple_if(value, of)
        if needs is not None and all(_marked(each) % least == 0 for each, least in needs):
            return of
        of //= 2
    return 1


def _marked(argument: SSAValue) -> int:
    assert isinstance(argument, BlockArgument)
    function = argument.block.parent_op()
    assert isinstance(function, FuncOp)
    return multiples_of(function)[argument.index]


_BELOW = {"slt": 0, "ult": 0, "sge": 0, "uge": 0, "sgt": 1, "ugt": 1, "sle": 1, "ule": 1}
"""Comparisons of a number with an end before which it is: which operand the number is."""


def _as_one(mask: SSAValue, along: int | None, together: int) -> bool:
    """Whether conditions of so many neighbours are one: they follow each other from a multiple on, to another multiple."""
    owner = mask.owner
    if along is None or as_tensor(mask.type) is None:
        return True
    match owner:
        case arith.AndIOp() | arith.OrIOp():
            return all(_as_one(each, along, together) for each in owner.operands)
        case BroadcastOp():
            return tensor_of(owner.src).get_shape()[along] == 1 or _as_one(owner.src, along, together)
        case ExpandDimsOp():
            return _as_one(owner.src, _inner(owner, along), together)
        case SplatOp() | arith.ConstantOp():
            return True
        case CmpiOp():
            steps = [strides(each)[along] for each in owner.operands]
            if steps == [0, 0]:
                return True
            moving = _BELOW.get(owner.name_of_predicate)
            if moving is None or (steps[moving], steps[1 - moving]) != (1, 0):
                return False
            return all(_multiple(each, along, together) % together == 0 for each in owner.operands)
        case _:
            return False
