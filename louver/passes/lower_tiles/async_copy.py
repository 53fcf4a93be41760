"""Copies from global to shared memory that run while the program goes on: `cp.async`, up to a chunk of 16 bytes each."""

from __future__ import annotations

from typing import cast, get_args

from louver.ir.tile import AsyncCopyOp, AsyncWaitOp
from louver.ir.tile.layout import Layout, Vector
from louver.ir.tile.shared import SharedLayout
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait, CopyBytes
from louver.passes.lower_tiles.memory import each_of
from louver.passes.lower_tiles.neighbours import Access, accesses
from louver.passes.lower_tiles.shared import place_of, tile_of
from louver.passes.lower_tiles.state import Lowering, Registers
from louver.ptx.module import Address, Reg


class NotInChunksError(Exception):
    """Elements whose addresses are not known to be side by side, in pieces that a thread can copy, under one condition."""


def begin_copy(low: Lowering, op: AsyncCopyOp) -> Registers:
    """Copies of a tile to the memory of its slot. Raises NotInChunksError where pieces are too small."""
    layout, pointers = low.layout(op.ptr), low.values[op.ptr]
    low.begin_load()
    if op.free is None:
        low.begin_copy()
    low.values[op.result] = low.values[op.slot]
    tile, place = tile_of(op.result, op), place_of(low, op.result, op, layout.thread)
    owner = low.owner(layout)
    for access in accesses(low, pointers, each_of(low, op.mask, len(pointers)), tile.size):
        first, size = _piece(layout, tile, access)
        source, absent = access.address, low.constant(0, "pred")
        if access.mask is not None and op.elsewhere is None:
            absent = low.inverted(access.mask)
        elif access.mask is not None and op.elsewhere is not None:
            base = low.k.add(cast(Reg, source.base), source.offset)
            source = Address(low.k.selp(base, low.scalar(op.elsewhere), access.mask))
        low.k.emit(AsyncCopy(size), place.address(first), source, absent, guard=owner)
    return low.values[op.result]


def _piece(layout: Layout, tile: SharedLayout, access: Access) -> tuple[Vector, CopyBytes]:
    """The first element of an access, whose elements are side by side in shared memory too, and its bytes."""
    elements = [layout.registers[number] for number in access.elements]
    along = [element[tile.fast] for element in elements]
    count, size = len(elements), len(elements) * tile.size
    if size not in get_args(CopyBytes) or along[0] % count or along != list(range(along[0], along[0] + count)):
        raise NotInChunksError
    return elements[0], cast("CopyBytes", size)


def commit_copies(low: Lowering) -> None:
    """The copies that each thread has begun are a group."""
    low.k.emit(AsyncCommit())


def wait_for_copies(low: Lowering, op: AsyncWaitOp) -> None:
    """Each thread's copies have been made; before one takes what another one has copied, they meet."""
    low.k.emit(AsyncWait(op.num.value.data))
    low.have_put()
