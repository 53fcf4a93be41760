"""A dense tile from values and metadata: both go through shared memory, and each thread looks up what its elements are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import FixedBitwidthType
from xdsl.ir import SSAValue

from louver.ir.tile import DecompressOp
from louver.ir.tile.decompress import KEPT
from louver.ir.tile.layout import Vector
from louver.ir.tile.metadata import METADATA_ROWS, WORD_ENTRIES
from louver.ir.tile.types import tensor_of
from louver.isa.instruction import REGISTER_BITS, RegType
from louver.isa.memory import Store
from louver.isa.metadata import GROUPS, MAPS, MetadataMap
from louver.passes.lower_tiles.exchange import load_shared
from louver.passes.lower_tiles.state import Lowering, Registers, element_of, register_class
from louver.ptx.module import Address, Reg

CODE_BITS = 4
"""Bits of a group's code: two indices of two bits, the first one in the low bits."""

INDEX_BITS = 2
INDEX_MASK = (1 << INDEX_BITS) - 1


@dataclass(frozen=True, slots=True)
class _Stored:
    """How a sparse tile's parts lie in shared memory. map: of its codes. kept: values of a row. entries: of a row of metadata.

    size, metadata_size: bytes of an element of each. columns: the dimension of a tile that is K.
    """

    map: MetadataMap
    kept: int
    entries: int
    size: int
    metadata_size: int
    metadata_start: int
    columns: int

    def of(self, place: Vector) -> tuple[int, int]:
        """Row and column of a place in a tile."""
        return place[1 - self.columns], place[self.columns]

    def value(self, place: Vector) -> int:
        """Bytes before the first value of the group of an element."""
        row, column = self.of(place)
        return self.size * (row * self.kept + column // self.map.group * (self.map.group // KEPT))

    def entry(self, place: Vector) -> int:
        """Bytes before the entry that has the code of an element's group."""
        row, group = self._group(place)
        whole = row // METADATA_ROWS * self.entries + group // GROUPS * WORD_ENTRIES
        return self.metadata_size * (whole + self.map.entry(row % METADATA_ROWS, group % GROUPS)[0])

    def shift(self, place: Vector) -> int:
        """Bits of the entry below that code."""
        row, group = self._group(place)
        return CODE_BITS * self.map.entry(row % METADATA_ROWS, group % GROUPS)[1]

    def index(self, place: Vector) -> int:
        """An element's index in its group, as codes have it: 1:2 counts halves of elements."""
        return self.of(place)[1] % self.map.group * (GROUPS // CODE_BITS // self.map.group)

    def _group(self, place: Vector) -> tuple[int, int]:
        row, column = self.of(place)
        return row, column // self.map.group


def lower_decompression(low: Lowering, op: DecompressOp) -> Registers:
    """The elements of a dense tile. Every step of a layout is a power of two, so that addresses are sums of what each bit adds."""
    assert op.metadata is not None and op.columns is not None
    stored = _stored(op, op.metadata, op.columns.value.data)
    low.begin_exchange(alone=False)
    _put(low, op, op.src, lambda at: stored.size * (stored.of(at)[0] * stored.kept + stored.of(at)[1]), 0)
    _put(
        low,
        op,
        op.metadata,
        lambda at: stored.metadata_size * (stored.of(at)[0] * stored.entries + stored.of(at)[1]),
        stored.metadata_start,
    )
    low.take_exchanged(alone=False)
    return _taken(low, op, stored)


def decompression_bytes(op: DecompressOp) -> int:
    """Shared memory for the parts of a sparse tile."""
    assert op.metadata is not None and op.columns is not None
    stored = _stored(op, op.metadata, op.columns.value.data)
    return stored.metadata_start + stored.metadata_size * len_of(op.metadata)


def len_of(value: SSAValue) -> int:
    """Elements of a tile."""
    rows, columns = tensor_of(value).get_shape()
    return rows * columns


def _stored(op: DecompressOp, metadata: SSAValue, columns: int) -> _Stored:
    element = tensor_of(op.src).element_type
    assert isinstance(element, FixedBitwidthType)
    size, metadata_size = (REGISTER_BITS[register_class(element_of(each.type), op)] // 8 for each in (op.src, metadata))
    return _Stored(
        MAPS[element.bitwidth if op.bits is None else op.bits.value.data],
        tensor_of(op.src).get_shape()[columns],
        tensor_of(metadata).get_shape()[columns],
        size,
        metadata_size,
        -(-len_of(op.src) * size // metadata_size) * metadata_size,
        columns,
    )


def _put(low: Lowering, op: DecompressOp, value: SSAValue, offset: Callable[[Vector], int], start: int) -> None:
    layout, registers = low.layout(value), low.values[value]
    base, owner = low.room(op, [offset(step) for step in layout.thread]), low.owner(layout)
    for register, at in zip(registers, layout.registers, strict=True):
        low.k.emit(Store("shared", register.type), Address(base, start + offset(at)), register, guard=owner)


def _taken(low: Lowering, op: DecompressOp, stored: _Stored) -> Registers:
    layout, kind = low.layout(op.result), register_class(element_of(op.result.type), op)
    values, entries = (low.room(op, [of(step) for step in layout.thread]) for of in (stored.value, stored.entry))
    shift, index = (low.combined([of(step) for step in layout.thread]) for of in (stored.shift, stored.index))
    loaded: dict[tuple[RegType, int], Reg] = {}

    def load(of: RegType, base: Reg, offset: int) -> Reg:
        if (of, offset) not in loaded:
            loaded[of, offset] = load_shared(low, of, Address(base, offset))
        return loaded[of, offset]

    codes: dict[Vector, list[Reg]] = {}
    found: list[Reg] = []
    for at in layout.registers:
        row, column = stored.of(at)
        group = (row, column // stored.map.group)
        if group not in codes:
            entry = load("b32", entries, stored.metadata_start + stored.entry(at))
            codes[group] = [_index(low, entry, shift, stored.shift(at) + INDEX_BITS * each) for each in range(KEPT)]
        own = stored.index(at)
        wanted = low.constant(own, "b32") if index is None else low.k.add(index, own)
        element = low.constant(0, kind)
        for number in range(stored.map.group // KEPT):
            value = load(kind, values, stored.value(at) + number * stored.size)
            element = low.k.selp(value, element, low.k.setp("eq", "u32", codes[group][number], wanted))
        found.append(element)
    return tuple(found)


def _index(low: Lowering, entry: Reg, shift: Reg | None, further: int) -> Reg:
    by = further if shift is None else low.k.add(shift, further)
    return low.k.and_(low.k.shr(entry, by), INDEX_MASK)
