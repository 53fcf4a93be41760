"""Dots of f32 that are to be more exact than tf32: each operand is the sum of parts of 11 bits, and parts are multiplied by parts.

A tile is its own first part, since tensor cores read the bits of tf32 alone. The next part is what these bits leave of it, and so on.
Products of parts are exact. Those that are left out are below 2^-21 of the whole (`tf32x3`) or 2^-32 (`ieee`). The least products come
first. They are NaN where an operand is infinite, and count as 0 then: the product of the first parts is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.shared import place_of
from louver.compile.lower.tiles.staging import Part, Place, put, take
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.shared_access import best_way, sums
from louver.ir.tile import BlockedAttr, DotOp, SharedAttr
from louver.ir.tile.shared import SharedLayout
from louver.ir.tile.staging import in_shared, tile_of
from louver.ir.tile.types import element_of
from louver.isa.memory import MAX_BYTES
from louver.isa.move import Bitcast
from louver.isa.scalar import Binary
from louver.isa.swizzle import BANK_LINE, GROUP
from louver.ptx.module import Reg

TF32_BITS = 0xFFFFE000
"""The bits of f32 that tf32 has."""

PART_ALIGNMENT = GROUP * BANK_LINE
"""Bytes to a multiple of which parts in shared memory are aligned: the widest swizzle repeats."""

TOGETHER_BITS = 4
"""Of the number of elements that a thread loads before it stores their parts: 16."""


def part_pairs(count: int) -> Sequence[tuple[int, int]]:
    """The pairs of parts of A and B that are multiplied, the least products first. Their numbers add up to the last part's at most."""
    return [(a, both - a) for both in range(count - 1, -1, -1) for a in range(both + 1)]


def parts_of(low: Lowering, value: Reg, count: int) -> Registers:
    """An element, and what adds up to it where it is finite, with more bits than tensor cores read; only the last part has none beyond."""
    found = [value]
    for _ in range(count - 1):
        bits = low.emit(Bitcast("b32"), found[-1])
        read = low.emit(Bitcast("f32"), low.k.and_(bits, TF32_BITS))
        found.append(low.emit(Binary("sub", "f32"), found[-1], read))
    return tuple(found)


def without_nan(low: Lowering, sums: Registers, *, into: Registers | None = None) -> Registers:
    """Sums, 0 where they are NaN. into: the registers that they are in then; new ones by default."""
    zero, places = low.constant(0.0, "f32"), into or (None,) * len(sums)
    return tuple(
        low.k.selp(each, zero, low.k.setp("eq", "f32", each, each), into=place)
        for each, place in zip(sums, places, strict=True)
    )


class PartedOperands:
    """A dot's operands in shared memory, and their parts: the first ones, and one more of each, which others follow in its place.

    The first part is the operand itself, but where neighbours are not along K: then it is turned.
    """

    def __init__(self, low: Lowering, op: DotOp) -> None:
        self._low, self._op, self._turned = low, op, False
        self._stored: dict[tuple[SSAValue, int], int] = {}
        start = low.rooms.exchanges.get(op, 0)
        for value, number in _stored_parts(op):
            self._stored[value, number] = start
            start += _part_bytes(value)

    def tile(self, value: SSAValue) -> SharedLayout:
        """The places of a part's elements."""
        found = tile_of(value)
        along = _k_dimension(self._op, value) if self._op.parts > 1 else found.fast
        return SharedAttr.along(along).place(found.shape, found.size)

    def places(self, value: SSAValue) -> Sequence[Reg]:
        """The first part of an operand and the other one, as the number of bytes before them."""
        low, stored = self._low, self._stored
        numbers = range(min(self._op.parts, 2))
        return [
            low.constant(stored[value, each], "b32") if (value, each) in stored else low.scalar(value)
            for each in numbers
        ]

    def put(self, number: int) -> None:
        """Let the other part be the one of that number."""
        low = self._low
        low.begin_exchange(alone=False, fenced=False)
        for value in dict.fromkeys(value for value, _ in self._stored):
            places = {number: self._stored[value, 1]}
            if (value, 0) in self._stored and not self._turned:
                places[0] = self._stored[value, 0]
            self._put(value, places)
        self._turned = True
        low.accesses.unseen = True
        low.take_exchanged(alone=False)

    def _put(self, value: SSAValue, places: Mapping[int, int]) -> None:
        """Store parts of an operand, by their numbers, so many bytes on."""
        low, memory, tile = self._low, tile_of(value), self.tile(value)
        neighbours = MAX_BYTES // tile.size
        if memory.fast == tile.fast:
            order = (tile.fast, 1 - tile.fast)
            encoding = BlockedAttr.default(tile.shape, low.warps, neighbours, order, whole=True)
        else:
            encoding = BlockedAttr.turning(tile.shape, low.warps, neighbours, tile.fast)
        layout = encoding.layout(tile.shape)
        apart = layout.register[TOGETHER_BITS:]
        taking, putting = (best_way(layout, each, apart, matrices=False) for each in (memory, tile))
        source = place_of(low, value, self._op, layout.thread)
        for first in sums(apart, (0, 0)):
            together = Part(first, apart)
            taken = take(source, layout, taking, together, element_of(value.type), self._op)
            parts = {at: parts_of(low, each, max(places) + 1) for at, each in taken.items()}
            for number, place in places.items():
                into = Place.at(low, tile, place, layout.thread)
                elements = {at: each[number] for at, each in parts.items()}
                put(into, layout, putting, together, elements, low.owner(layout))


def parts_bytes(op: DotOp) -> int:
    """Shared memory that the parts of a dot's operands take, beside the operands."""
    return sum(_part_bytes(value) for value, _ in _stored_parts(op))


def _stored_parts(op: DotOp) -> list[tuple[SSAValue, int]]:
    """The parts that take room: the first one of an operand that is turned, and another one of each."""
    operands = [each for each in (op.a, op.b) if in_shared(each)] if op.parts > 1 else []
    return [
        (value, number)
        for value in operands
        for number in (0, 1)
        if number or tile_of(value).fast != _k_dimension(op, value)
    ]


def _part_bytes(value: SSAValue) -> int:
    return -(-tile_of(value).bytes // PART_ALIGNMENT) * PART_ALIGNMENT


def _k_dimension(op: DotOp, value: SSAValue) -> int:
    return 1 if value is op.a else 0
