"""Computes the cost of a tile's loads and stores in a layout, from the memory lines and sectors that a warp accesses, and that of
its arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import SSAValue

from louver.analysis.effects import is_elementwise
from louver.analysis.runs import Runs
from louver.compile.plan.encode.shared_access import SCHEDULERS
from louver.compile.plan.feeds.chunks import known_chunk
from louver.compile.plan.feeds.neighbours import strides
from louver.ir import tile as tt
from louver.ir.tile.layout import LANE_BITS, Layout, Vector
from louver.ir.tile.types import memory_bytes, tensor_of
from louver.isa.memory import MAX_BYTES
from louver.isa.swizzle import BANK_LINE

SECTOR = 32
"""The smallest number of bytes that memory moves. Two sectors go to the L2 cache in the time of one line."""

OVERHEAD = 4
"""Instructions of an access: the access, its address and its mask."""

BRANCH = 4
"""Further instructions of an atomic sum. The assembler makes a branch of its mask."""

SWAP = 16
"""Further instructions of an atomic sum of one element of 16 bits. It is a loop of a load and a compare-and-swap of its word."""

WORD = 4
"""Bytes of the least atomic access of a GPU."""

SLOW = 15
"""Turns of a scheduler that a division, an exponential or a logarithm takes: 7 instructions, and a special function, which takes 8
turns. Source: CUDA C++ Programming Guide, throughput of arithmetic instructions (16 reciprocals and 128 products a clock and SM).
"""

_QUICK = (math.AbsFOp, math.CeilOp, math.CopySignOp, math.FloorOp, math.FmaOp, math.RoundEvenOp, math.TruncOp)
_SLOW = (arith.DivfOp, *(op for op in math.Math.operations if op not in _QUICK))


def takes_turns(value: SSAValue) -> bool:
    """Whether an elementwise operation makes a tile of floating-point elements."""
    return is_elementwise(value.owner) and isinstance(tensor_of(value).element_type, AnyFloat)


def turns(value: SSAValue, layout: Layout) -> float:
    """Turns of the banks in which a thread computes its floating-point elements of a tile; 0 if no elementwise operation makes it."""
    if not takes_turns(value):
        return 0
    return len(layout.registers) * (SLOW if type(value.owner) in _SLOW else 1) / SCHEDULERS


@dataclass(frozen=True, slots=True)
class Run:
    """The neighbours of a tile in memory.

    along: the dimension of neighbours; -1 if there are none.
    together: the largest number of elements that one access may move.
    size: bytes of an element.
    summed: whether the access is an atomic one.
    """

    along: int
    together: int
    size: int
    summed: bool = False

    @classmethod
    def scattered(cls, op: tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp) -> Run:
        """The run of an access in which each element is on a separate line."""
        return cls(-1, 1, _size(op), isinstance(op, tt.AtomicRMWOp))

    def cost(self, layout: Layout) -> float:
        """The number of times that a warp accesses a line, or two sectors, for all its registers.

        An atomic sum reads and writes it: aiter's experts took 205 and 219 us with sums of single elements, and 154 and 166 with vectors.
        """
        steps = [_step(self.along, 1 << bit, layout) for bit in range(self.together.bit_length() - 1)]
        bits = next((number for number, step in enumerate(steps) if step not in layout.register), len(steps))
        places = [layout.of_thread(lane) for lane in range(1 << LANE_BITS)]
        lines, sectors = (len({self._part(place, each) for place in places}) for each in (BANK_LINE, SECTOR))
        count, swaps = len(layout.registers) >> bits, self.summed and self.size << bits < WORD
        instructions = OVERHEAD + self.summed * BRANCH + swaps * SWAP
        return count * ((1 + self.summed) * max(lines, sectors / 2) + instructions / SCHEDULERS)

    def _part(self, place: Vector, length: int) -> Vector:
        return tuple(at * self.size // length if dimension == self.along else at for dimension, at in enumerate(place))

    def rows(self, like: Layout) -> Layout:
        """A layout with accesses as wide as possible and about eight neighbouring lanes.

        Warps are as in `like` where possible.
        """
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


def _size(op: tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp) -> int:
    return memory_bytes(cast(tt.PointerType, tensor_of(op.ptr).element_type).pointee)


def run_of(op: tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp, runs: Runs) -> Run | None:
    """The neighbours of an access; None if they are not known."""
    size = _size(op)
    known = known_chunk(op) if isinstance(op, tt.LoadOp) else None
    # Lanes along a matrix share sectors. A vector of single elements, such as one that is gathered, has none to share.
    if known is not None and (known[1] > size or len(tensor_of(op.ptr).get_shape()) > 1):
        return Run(known[0], known[1] // size, size)
    found = strides(op.ptr)
    if found.count(1) != 1:
        return None
    along = found.index(1)
    together = min(MAX_BYTES // size, tensor_of(op.ptr).get_shape()[along])
    while not runs.moves(op, along, together):
        together //= 2
    return Run(along, together, size, isinstance(op, tt.AtomicRMWOp))
