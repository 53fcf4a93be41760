"""Moves tiles between registers and shared memory, by vectors or matrix instructions
(`louver.compile.plan.encode.shared_access`).

Every step of a layout is a power of two. So an address is the exclusive or of the weights of all bits in the numbers of
thread and register. The part of the thread is computed once a kernel. The part of the register is a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Operation

from louver.compile.lower.tiles.packing import pack_elements, unpack_elements
from louver.compile.lower.tiles.state import Lowering
from louver.compile.lower.tiles.vectors import load_elements, store_elements
from louver.compile.plan.encode.shared_access import Memory, Way, sums
from louver.ir.tile.layout import Layout, Steps, Vector
from louver.isa.matrix import LoadMatrix, StoreMatrix
from louver.isa.move import Bitcast
from louver.ptx.module import Address, Reg


@dataclass(frozen=True, slots=True)
class Place:
    """A tile in shared memory, as a thread sees it.

    base: the address of the thread's first element, minus `start` bytes.
    weights: the weight of each bit of the thread's number, in bytes.
    bases: addresses by the constant bits that they include.
    """

    low: Lowering
    tile: Memory
    base: Reg
    start: int
    weights: tuple[int, ...]
    bases: dict[int, Reg] = field(default_factory=dict[int, Reg])

    @classmethod
    def at(cls, low: Lowering, tile: Memory, start: int, thread: Steps) -> Place:
        """The place of a tile `start` bytes after the beginning. thread: the steps of the bits of the thread's number."""
        weights = tuple(map(tile.offset, thread))
        return cls(low, tile, low.staged_address(weights), start, weights)

    def moved(self, by: Reg) -> Place:
        """The place `by` bytes further on."""
        return replace(self, base=self.low.k.add(self.base, by), bases={})

    def address(self, place: Vector) -> Address:
        """The address of the element at `place`, counted from the thread's first element.

        Bits that thread and constant both change are only chunks of a line. Without them, addresses are multiples of
        the bytes of a line.
        """
        constant, reach = self.tile.offset(place), 0
        for weight in self.weights:
            reach |= weight
        both = constant & reach
        if both not in self.bases:
            self.bases[both] = self.low.k.xor(self.base, both) if both else self.base
        return Address(self.bases[both], self.start + constant - both)


@dataclass(frozen=True, slots=True)
class Part:
    """The registers of a tile that move together: all, or those that differ from `first` by no step of `apart`."""

    first: Vector
    apart: Steps = ()

    @classmethod
    def whole(cls, layout: Layout) -> Part:
        """All registers."""
        return cls((0,) * len(layout.shape))


def put(place: Place, layout: Layout, way: Way, part: Part, registers: Mapping[Vector, Reg], guard: Reg | None) -> None:
    """Store registers, given by the places of their elements. guard: true in threads that store their elements."""
    low, size = place.low, place.tile.size
    for first in sums(way.rest(layout, part.apart), part.first):
        groups = [[registers[at] for at in sums(way.inside, matrix)] for matrix in sums(way.at_once, first)]
        if way.matrices:
            words = tuple(_word(low, elements, size) for elements in groups)
            low.k.emit(StoreMatrix(way.transposed, cast("Literal[1, 2, 4]", len(words))), place.address(first), words)
        else:
            store_elements(low, "shared", place.address(first), groups[0], size, guard)


def take(place: Place, layout: Layout, way: Way, part: Part, element: Attribute, op: Operation) -> dict[Vector, Reg]:
    """Load elements from shared memory. Returns registers by the places of the elements."""
    low, size, found = place.low, place.tile.size, dict[Vector, Reg]()
    for first in sums(way.rest(layout, part.apart), part.first):
        if not way.matrices:
            places = sums(way.inside, first)
            loaded = load_elements(low, "shared", place.address(first), element, op, [None] * len(places))
            found.update(zip(places, loaded, strict=True))
            continue
        words = low.k.regs("b32", 1 << len(way.at_once))
        load = LoadMatrix(way.transposed, cast("Literal[1, 2, 4]", len(words)))
        low.k.emit(load, tuple(words), place.address(first))
        for word, matrix in zip(words, sums(way.at_once, first), strict=True):
            places = sums(way.inside, matrix)
            found.update(zip(places, _elements(low, word, len(places), element, size), strict=True))
    return found


def _word(low: Lowering, elements: Sequence[Reg], size: int) -> Reg:
    """Pack elements in a 32-bit register."""
    if len(elements) > 1:
        return pack_elements(low, elements, size)
    return low.emit(Bitcast("b32"), elements[0]) if elements[0].type == "f32" else elements[0]


def _elements(low: Lowering, word: Reg, count: int, element: Attribute, size: int) -> Sequence[Reg]:
    """The elements of a register, each in the format of a tile."""
    if count > 1:
        return unpack_elements(low, word, count, element, size)
    return [low.emit(Bitcast("f32"), word) if isinstance(element, Float32Type) else word]
