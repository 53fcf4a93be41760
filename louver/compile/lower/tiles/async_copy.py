"""Lowers asynchronous copies from global to shared memory: `cp.async` of 4 to 16 bytes."""

from __future__ import annotations

from typing import cast

from louver.compile.lower.tiles.memory import each_of
from louver.compile.lower.tiles.neighbours import base_of
from louver.compile.lower.tiles.shared import place_of
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import AsyncCommitOp, AsyncCopyOp, AsyncWaitOp
from louver.ir.tile.staging import tile_of
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait, CopyBytes
from louver.ptx.module import Address


def begin_copy(low: Lowering, op: AsyncCopyOp) -> Registers:
    """Begin the copies of a tile to the memory of its slot."""
    layout, pointers = low.layout(op.ptr), low.values[op.ptr]
    low.begin_load()
    low.copied.add(op.slot)
    if op.free is None:
        low.begin_copy()
    low.values[op.result] = low.values[op.slot]
    tile, place = tile_of(op.result), place_of(low, op.result, op, layout.thread)
    owner, masks = low.owner(layout), each_of(low, op.mask, len(pointers))
    copy = AsyncCopy(cast("CopyBytes", op.chunk.value.data))
    assert all(step[tile.fast] * tile.size % copy.size == 0 for step in layout.thread)
    for first, pointer, mask in zip(layout.registers, pointers, masks, strict=True):
        if first[tile.fast] * tile.size % copy.size:
            # The element is part of an earlier chunk.
            continue
        base, offset = base_of(low, pointer)
        source, absent = Address(base, offset), low.constant(0, "pred")
        if mask is not None and op.elsewhere is None:
            absent = low.inverted(mask)
        elif mask is not None and op.elsewhere is not None:
            source = Address(low.k.selp(low.k.add(base, offset), low.scalar(op.elsewhere), mask))
        low.k.emit(copy, place.address(first), source, absent, guard=owner)
    return low.values[op.result]


def commit_copies(low: Lowering, op: AsyncCommitOp) -> None:
    """Commit the copies that each thread has begun as a group."""
    low.k.emit(AsyncCommit())


def wait_for_copies(low: Lowering, op: AsyncWaitOp) -> None:
    """Wait until each thread's copies are complete. Threads must synchronize before one reads copies of another."""
    low.k.emit(AsyncWait(op.num.value.data))
    low.have_put(*low.copied)
