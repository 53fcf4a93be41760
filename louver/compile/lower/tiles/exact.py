"""Lowers f32 dots that must be more exact than tf32.

Each operand is a sum of parts of 11 bits, and parts are multiplied by parts. The first part is the tile itself, because
tensor cores read only the bits of tf32. The next part is the remainder without these bits, and so on. Products of parts
are exact. The products that are left out are below 2^-21 of the whole (`tf32x3`) or 2^-32 (`ieee`).

The smallest products come first. If an operand is infinite, they are NaN, and count as 0. The product of the first
parts is then correct.
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
"""Mask of the bits of f32 that tf32 has."""

PART_ALIGNMENT = GROUP * BANK_LINE
"""Alignment of parts in shared memory, in bytes: the period of the widest swizzle."""

TOGETHER_BITS = 4
"""A thread loads 2^4 = 16 elements before it stores their parts."""


def part_pairs(count: int) -> Sequence[tuple[int, int]]:
    """The pairs of parts of A and B that are multiplied, smallest products first.

    The sum of both numbers is below `count`.
    """
    return [(a, both - a) for both in range(count - 1, -1, -1) for a in range(both + 1)]


def parts_of(low: Lowering, value: Reg, count: int) -> Registers:
    """The parts of a finite element: the element, then in turn the remainder without the bits that tensor cores read."""
    found = [value]
    for _ in range(count - 1):
        bits = low.emit(Bitcast("b32"), found[-1])
        read = low.emit(Bitcast("f32"), low.k.and_(bits, TF32_BITS))
        found.append(low.emit(Binary("sub", "f32"), found[-1], read))
    return tuple(found)


def without_nan(low: Lowering, sums: Registers, *, into: Registers | None = None) -> Registers:
    """Replace NaN by 0 in sums. into: registers for the results; new ones by default."""
    zero, places = low.constant(0.0, "f32"), into or (None,) * len(sums)
    return tuple(
        low.k.selp(each, zero, low.k.setp("eq", "f32", each, each), into=place)
        for each, place in zip(sums, places, strict=True)
    )


class PartedOperands:
    """A dot's operands in shared memory, and their parts: the first part of each, and one place for the further parts
    in turn.

    The first part is the operand itself. If its neighbours are not along K, the first part is a transposed copy.
    """

    def __init__(self, low: Lowering, op: DotOp) -> None:
        self._low, self._op, self._turned = low, op, False
        self._stored: dict[tuple[SSAValue, int], int] = {}
        start = low.rooms.exchanges.get(op, 0)
        for value, number in _stored_parts(op):
            self._stored[value, number] = start
            start += _part_bytes(value)

    def tile(self, value: SSAValue) -> SharedLayout:
        """The layout of a part in shared memory."""
        found = tile_of(value)
        along = _k_dimension(self._op, value) if self._op.parts > 1 else found.fast
        return SharedAttr.along(along).place(found.shape, found.size)

    def places(self, value: SSAValue) -> Sequence[Reg]:
        """The offsets in bytes of the first part of an operand and of the other part."""
        low, stored = self._low, self._stored
        numbers = range(min(self._op.parts, 2))
        return [
            low.constant(stored[value, each], "b32") if (value, each) in stored else low.scalar(value)
            for each in numbers
        ]

    def put(self, number: int) -> None:
        """Store part `number` to the place of the other part."""
        low = self._low
        low.begin_exchange(self._op, alone=False, fenced=False)
        for value in dict.fromkeys(value for value, _ in self._stored):
            places = {number: self._stored[value, 1]}
            if (value, 0) in self._stored and not self._turned:
                places[0] = self._stored[value, 0]
            self._put(value, places)
        self._turned = True
        low.accesses.unseen = True
        low.take_exchanged(self._op, alone=False)

    def _put(self, value: SSAValue, places: Mapping[int, int]) -> None:
        """Store parts of an operand. places: offset in bytes for each part number."""
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
    """Bytes of shared memory for the parts of a dot's operands, without the operands."""
    return sum(_part_bytes(value) for value, _ in _stored_parts(op))


def _stored_parts(op: DotOp) -> list[tuple[SSAValue, int]]:
    """The parts that need shared memory: the first part of a transposed operand, and one further part of each operand."""
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
