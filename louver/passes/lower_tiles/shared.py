"""Operands of dots through shared memory: stored in chunks of 16 bytes, loaded as matrices by ldmatrix where products take them so.

Every step of a layout is a power of two, so that an address is an exclusive or of what each bit of a thread's and a register's number
adds: a part of the thread, once a kernel, and constants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, Operation, SSAValue

from louver.ir.tile import ConvertLayoutOp, FuncOp, LocalAllocOp, LocalStoreOp, SharedAttr
from louver.ir.tile.layout import LANE_BITS, Layout, Steps, Vector
from louver.ir.tile.shared import SharedLayout
from louver.ir.tile.types import register_encoding, tensor_of
from louver.isa.bytes import LoadByte, StoreByte
from louver.isa.convert import ConvertInteger
from louver.isa.instruction import RegType
from louver.isa.matrix import LoadMatrix
from louver.isa.memory import Load, Store
from louver.isa.move import Bitcast
from louver.isa.swizzle import CHUNK
from louver.passes.lower_tiles.numbers import element_bytes, extended, is_integer
from louver.passes.lower_tiles.packing import WORD, pack_elements, unpack_elements
from louver.passes.lower_tiles.state import Lowering, Registers, element_of, register_class
from louver.ptx.module import Address, Reg

MATRIX_BITS = 3
"""Of the number of a row of a matrix, or of a chunk's element of 16 bits: 8 of each."""


def in_shared(value: SSAValue) -> bool:
    """Whether a tile is in shared memory."""
    return isinstance(register_encoding(value.type), SharedAttr)


def place_tiles(function: FuncOp) -> tuple[dict[SSAValue, int], int]:
    """Where each tile in shared memory begins there, and the bytes of all of them. Each has its own place for the whole kernel."""
    found: dict[SSAValue, int] = {}
    end = 0
    for op in function.body.walk():
        if isinstance(op, ConvertLayoutOp | LocalAllocOp) and in_shared(op.result):
            tile = tile_of(op.result, op)
            found[op.result] = -(-end // tile.swizzle.repeat) * tile.swizzle.repeat
            end = found[op.result] + tile.bytes
    return found, end


def lower_memory(low: Lowering, op: LocalAllocOp) -> Registers:
    """A tile in shared memory is the number of bytes before it."""
    return (low.constant(low.staged[op.result], "b32"),)


def tile_of(value: SSAValue, op: Operation) -> SharedLayout:
    """Where the elements of a tile in shared memory stand."""
    tensor = tensor_of(value)
    encoding = register_encoding(tensor)
    assert isinstance(encoding, SharedAttr)
    return encoding.place(tensor.get_shape(), element_bytes(tensor.element_type, op))


@dataclass(frozen=True, slots=True)
class Place:
    """A tile in shared memory, as a thread sees it. start: bytes before it. weights: of the bits of the thread's number, in bytes.

    bases: addresses by the bits of `address` that they have already.
    """

    low: Lowering
    tile: SharedLayout
    start: int
    weights: tuple[int, ...]
    bases: dict[int, Reg]

    @classmethod
    def of(cls, low: Lowering, value: SSAValue, op: Operation, thread: Steps) -> Place:
        """A tile that is in shared memory. thread: steps of the bits of the thread's number."""
        tile = tile_of(value, op)
        weights = tuple(map(tile.offset, thread))
        base, start = low.staged_address(weights), low.known.sum_of(low.scalar(value))
        if start.base is not None:
            base = low.k.add(base, start.base)
        return cls(low, tile, start.constant, weights, {0: base})

    def address(self, place: Vector) -> Address:
        """Of the element that is so much further on than the thread's first.

        What thread and constant both change are chunks of a line, whose addresses are multiples of a line's bytes without them.
        """
        constant, reach = self.tile.offset(place), 0
        for weight in self.weights:
            reach |= weight
        both = constant & reach
        if both not in self.bases:
            self.bases[both] = self.low.k.xor(self.bases[0], both)
        return Address(self.bases[both], self.start + constant - both)


def put_tile(low: Lowering, op: ConvertLayoutOp | LocalStoreOp) -> None:
    """A tile from registers to shared memory: to its own place, or to a slot."""
    layout, tile = low.layout(op.src), tile_of(op.result, op)
    registers = dict(zip(layout.registers, low.values[op.src], strict=True))
    if isinstance(op, LocalStoreOp):
        low.values[op.result] = low.values[op.slot]
    else:
        low.values[op.result] = (low.constant(low.staged[op.result], "b32"),)
    place = Place.of(low, op.result, op, layout.thread)
    owner, size = low.owner(layout), tile.size
    count = _together(layout, tile, CHUNK)
    low.begin_put(free=isinstance(op, LocalStoreOp) and op.free is not None)
    for first in registers:
        if first[tile.fast] % count:
            continue
        elements = [registers[_moved(first, tile.fast, number)] for number in range(count)]
        _store(low, place.address(first), elements, size, owner)


def _together(layout: Layout, tile: SharedLayout, most: int) -> int:
    """Neighbours that a thread has, within so many bytes."""
    count = 1
    while count * tile.size < most and _moved((0,) * len(tile.shape), tile.fast, count) in layout.register:
        count *= 2
    return count


def _moved(place: Vector, dimension: int, by: int) -> Vector:
    return tuple(at + by if axis == dimension else at for axis, at in enumerate(place))


def _store(low: Lowering, address: Address, elements: Sequence[Reg], size: int, guard: Reg | None) -> None:
    """Neighbours, by one store."""
    k, count = low.k, len(elements)
    if size < WORD and count * size >= WORD:
        each = WORD // size
        elements = [pack_elements(low, elements[number : number + each], size) for number in range(0, count, each)]
    elif count > 1 and size < WORD:
        elements = [pack_elements(low, elements, size)]
    elif size < WORD and elements[0].type == "b32":
        elements = [k.low_half(elements[0])]
    if count * size == 1:
        k.emit(StoreByte("shared"), address, elements[0], guard=guard)
    else:
        vector = cast("Literal[1, 2, 4]", len(elements))
        values = elements[0] if vector == 1 else tuple(elements)
        k.emit(Store("shared", elements[0].type, vector), address, values, guard=guard)


def take_tile(low: Lowering, op: ConvertLayoutOp) -> Registers:
    """A tile from shared memory to registers, as its encoding says."""
    layout, tile = low.layout(op.result), tile_of(op.src, op)
    low.begin_take()
    matrices = _matrices(layout, tile)
    found = _one_by_one(low, op, layout, tile) if matrices is None else _by_matrices(low, op, matrices, tile)
    return tuple(found[place] for place in layout.registers)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """A layout that ldmatrix gives. word: steps of the elements of a register. rows: of the numbers of a matrix's rows.

    rest: steps of the registers. warp: steps of the warps.
    """

    transposed: bool
    word: Steps
    rows: Steps
    rest: Steps
    warp: Steps


def _matrices(layout: Layout, tile: SharedLayout) -> _Matrices | None:
    """How ldmatrix gives a layout; None where it does not."""
    if len(tile.shape) == 1:
        return None
    bits = (WORD // tile.size).bit_length() - 1
    fast, slow = (
        tuple(_moved((0, 0), axis, 1 << bit) for bit in range(LANE_BITS)) for axis in (tile.fast, 1 - tile.fast)
    )
    lanes, word, rest = layout.lane, layout.register[:bits], layout.register[bits:]
    if (*word, *lanes[:2]) == fast[: bits + 2] and lanes[2:] == slow[:MATRIX_BITS]:
        return _Matrices(False, word, lanes[2:], rest, layout.warp)
    if tile.size == 2 and (*word, *lanes[:2]) == slow[:MATRIX_BITS] and lanes[2:] == fast[:MATRIX_BITS]:
        return _Matrices(True, word, (*word, *lanes[:2]), rest, layout.warp)
    return None


def _by_matrices(low: Lowering, op: ConvertLayoutOp, matrices: _Matrices, tile: SharedLayout) -> dict[Vector, Reg]:
    """The registers of the elements, by their places."""
    element, nothing = element_of(op.result.type), (0, 0)
    at_once = matrices.rest[: LANE_BITS - MATRIX_BITS]
    lanes = (*matrices.rows, *at_once, *[nothing] * (LANE_BITS - MATRIX_BITS - len(at_once)))
    place = Place.of(low, op.src, op, (*lanes, *matrices.warp))
    inside, found = _sums(matrices.word), dict[Vector, Reg]()
    for first in _sums(matrices.rest[len(at_once) :]):
        words = low.k.regs("b32", 1 << len(at_once))
        load = LoadMatrix(matrices.transposed, cast("Literal[1, 2, 4]", len(words)))
        low.k.emit(load, tuple(words), place.address(first))
        for word, matrix in zip(words, _sums(at_once), strict=True):
            elements = _elements(low, word, len(inside), element, tile.size)
            places = (_sum(_sum(first, matrix), each) for each in inside)
            found.update(zip(places, elements, strict=True))
    return found


def _elements(low: Lowering, word: Reg, count: int, element: Attribute, size: int) -> Sequence[Reg]:
    """The elements of a register, each as a tile has it."""
    if count > 1:
        return unpack_elements(low, word, count, element, size)
    return [low.emit(Bitcast("f32"), word) if isinstance(element, Float32Type) else word]


def _one_by_one(low: Lowering, op: ConvertLayoutOp, layout: Layout, tile: SharedLayout) -> dict[Vector, Reg]:
    """The registers of the elements, by their places, an access each; neighbours that fill registers by one."""
    element = element_of(op.result.type)
    kind, place = register_class(element, op), Place.of(low, op.src, op, layout.thread)
    narrow = is_integer(element) and tile.size < WORD
    found: dict[Vector, Reg] = {}
    count = _together(layout, tile, CHUNK)
    for at in layout.registers:
        if at in found:
            continue
        if count > 1 and count * tile.size >= WORD:
            elements = _load_words(low, place.address(at), count, element, (kind, tile.size))
            places = (_moved(at, tile.fast, number) for number in range(count))
            found.update(zip(places, elements, strict=True))
            continue
        result = low.k.reg("b16" if narrow else kind)
        low.k.emit(LoadByte("shared") if tile.size == 1 else Load("shared", result.type), result, place.address(at))
        wide = low.emit(ConvertInteger("u32", "u16"), result) if narrow else result
        found[at] = extended(low, wide, element) if narrow else wide
    return found


def _load_words(
    low: Lowering, address: Address, count: int, element: Attribute, kind: tuple[RegType, int]
) -> list[Reg]:
    """Neighbours that fill registers, by one load. kind: the class of an element's register, and its bytes in memory."""
    type_, size = kind
    each = max(1, WORD // size)
    words = low.k.regs(type_ if each == 1 else "b32", count // each)
    vector = cast("Literal[1, 2, 4]", len(words))
    low.k.emit(Load("shared", words[0].type, vector), words[0] if vector == 1 else tuple(words), address)
    if each == 1:
        return words
    return [found for word in words for found in unpack_elements(low, word, each, element, size)]


def _sum(one: Vector, other: Vector) -> Vector:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _sums(steps: Iterable[Vector]) -> list[Vector]:
    """The places of a number's values, whose bits have these steps, in order."""
    found: list[Vector] = [(0, 0)]
    for step in steps:
        found += [_sum(place, step) for place in found]
    return found
