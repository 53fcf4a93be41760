"""Lowers stores and loads of tiles in shared memory, such as operands of dots."""

from __future__ import annotations

from xdsl.ir import Operation, SSAValue

from louver.compile.lower.tiles.staging import Part, Place, put, take
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.compile.plan.encode.shared_access import best_way
from louver.ir.tile import ConvertLayoutOp, LocalAllocOp, LocalStoreOp, SlotOp
from louver.ir.tile.layout import Steps
from louver.ir.tile.staging import slot_bytes, tile_of
from louver.ir.tile.types import element_of


def place_memory(low: Lowering, op: LocalAllocOp) -> Registers:
    """A tile in shared memory is represented by its offset in bytes."""
    return (low.constant(low.rooms.staged[op.result], "b32"),)


def lower_slot(low: Lowering, op: SlotOp) -> Registers:
    """The offset of the tile in a slot, in bytes."""
    memory = op.memory.owner
    assert isinstance(memory, LocalAllocOp)
    start, size, index = low.rooms.staged[op.memory], slot_bytes(memory.result), low.scalar(op.index)
    known = low.known.sum_of(index)
    if known.base is None:
        return (low.constant(start + known.constant * size, "b32"),)
    moved = low.k.mul_lo(index, size)
    place = low.k.add(moved, start)
    low.known.is_sum(place, moved, start)
    return (place,)


def place_of(low: Lowering, value: SSAValue, op: Operation, thread: Steps) -> Place:
    """The place of a tile in shared memory. thread: the steps of the bits of the thread's number."""
    start = low.known.sum_of(low.scalar(value))
    place = Place.at(low, tile_of(value), start.constant, thread)
    return place if start.base is None else place.moved(start.base)


def put_tile(low: Lowering, op: ConvertLayoutOp | LocalStoreOp) -> None:
    """Store a tile from registers to its place in shared memory, or to a slot."""
    layout, tile = low.layout(op.src), tile_of(op.result)
    registers = dict(zip(layout.registers, low.values[op.src], strict=True))
    low.begin_put(op.result, free=isinstance(op, LocalStoreOp) and op.free is not None)
    if isinstance(op, LocalStoreOp):
        low.values[op.result] = low.values[op.slot]
    else:
        low.values[op.result] = (low.constant(low.rooms.staged[op.result], "b32"),)
    way = best_way(layout, tile, matrices=low.means.matrices and not layout.repeats)
    place = place_of(low, op.result, op, (*way.lanes(layout), *layout.warp))
    put(place, layout, way, Part.whole(layout), registers, low.owner(layout))


def take_tile(low: Lowering, op: ConvertLayoutOp) -> Registers:
    """Load a tile from shared memory to registers, in the layout of its encoding."""
    layout, tile = low.layout(op.result), tile_of(op.src)
    low.begin_take()
    way = best_way(layout, tile)
    place = place_of(low, op.src, op, (*way.lanes(layout), *layout.warp))
    found = take(place, layout, way, Part.whole(layout), element_of(op.result.type), op)
    return tuple(found[at] for at in layout.registers)
