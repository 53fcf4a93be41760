"""Lowers bulk copies of boxes, which one thread begins, and the barriers at which all threads wait for their bytes."""

from __future__ import annotations

import functools

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import (
    BoxCopiesOp,
    ClearSlotsOp,
    EvenBarriersOp,
    FitBoxOp,
    InitBarriersOp,
    MeetOp,
    WaitBarrierOp,
)
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.staging import staged_bytes, tile_of
from louver.isa.sync import FenceProxyAsync, MbarrierInit
from louver.ptx.module import Address, Imm, Reg

VECTOR_BYTES = 16
"""Bytes of a store to shared memory."""


def init_barriers(low: Lowering, op: InitBarriersOp) -> Registers:
    """One thread initialises the barriers. A CTA barrier follows, so no thread waits at an mbarrier earlier."""
    first = low.rooms.staged[op.result]
    for index in range(op.count.value.data):
        low.k.emit(MbarrierInit(), _barrier(low, first + index * BARRIER_BYTES), Imm(1), guard=low.first_thread)
    low.k.fence_mbarrier_init()
    low.barrier()
    return (low.constant(first, "b32"),)


def even_barriers(low: Lowering, op: EvenBarriersOp) -> None:
    """One thread arrives at the barriers with an odd phase, so that all phases are even.

    All threads have waited for the last copies, because they have synchronized in the loop since. The slots before
    `read` have been read once more than the others.
    """
    k, first = low.k, low.rooms.staged[op.first]
    with k.if_(low.first_thread):
        earlier = k.sub(k.shl(low.constant(1, "b32"), low.scalar(op.read)), 1)
        odd = k.xor(earlier, k.sub(0, low.scalar(op.phase)))
        for index in range(op.count.value.data):
            turns = k.setp("ne", "u32", k.and_(odd, 1 << index), 0)
            k.mbarrier_arrive(_barrier(low, first + index * BARRIER_BYTES), guard=turns)


def fit_box(low: Lowering, op: FitBoxOp) -> Registers:
    """The tail of a box if its copies begin at the rows that whole boxes leave of the array, else the box."""
    k, whole = low.k, low.scalar(op.box)
    if op.box not in low.tails:
        return (whole,)
    (tail, size), extent = low.tails[op.box], op.rows
    left = k.add(k.and_(k.sub(size, 1), extent - 1), 1)
    ends = k.setp("eq", "u32", k.add(low.scalar(op.first), left), size)
    low.box_rows[op.result] = k.selp(left, extent, ends)
    return (k.selp(tail, whole, ends),)


def clear_slots(low: Lowering, op: ClearSlotsOp) -> None:
    """All threads write zeros to the slots, if any copies bring fewer rows than a slot has."""
    k = low.k
    rows = {memory: low.box_rows[box] for box, memory in zip(op.boxes, op.memories, strict=True) if box in low.box_rows}
    if not rows:
        return
    low.finish_products()
    thread, used = low.thread, any(map(low.may_be_read, rows))
    missing = functools.reduce(k.add, (k.sub(tile_of(memory).rows, copied) for memory, copied in rows.items()))
    with k.if_(k.setp("ne", "u32", missing, 0), uniform=True):
        if used:
            k.barrier_sync(0, low.threads)
        zeros = [k.mov(0, kind="b32")] * 4
        for memory in rows:
            place, start = k.mul_lo(thread, VECTOR_BYTES), low.rooms.staged[memory]
            with k.while_(functools.partial(k.setp, "lt", "u32", place, staged_bytes(memory))):
                k.store_shared(Address(k.add(low.staged_address(()), place), start), zeros)
                k.add(place, low.threads * VECTOR_BYTES, into=place)
        # Copies overwrite the zeros.
        k.fence_proxy_async()
    low.accesses.puts = True


def wait_for_boxes(low: Lowering, op: WaitBarrierOp) -> None:
    """Wait for the bytes in each thread.

    Threads must synchronize before a copy to a slot that another thread may still read.
    """
    low.k.wait(_place(low, op.barrier), low.scalar(op.phase))
    low.accesses.puts = True


def meet(low: Lowering, op: MeetOp) -> None:
    """Prepare copies wherever they begin next."""
    _begin_boxes(low, apart=False)


def copy_boxes(low: Lowering, op: BoxCopiesOp) -> None:
    """One thread announces the bytes and begins the copies. The columns of a copy are at most one swizzle span."""
    k = low.k
    if op.free is None:
        _begin_boxes(low, apart=op.apart is not None)
    low.accesses.loads = True
    tiles = [tile_of(slot) for slot in op.slots]
    barrier, start = _place(low, op.barrier), low.staged_address(())
    condition, space = low.both(low.scalar(op.pred), low.first_thread), low.target.bulk_copies
    assert condition is not None and space is not None
    with k.if_(condition):
        k.mbarrier_arrive_expect(barrier, _bytes(low, op))
        for tile, (box, place, slot) in zip(tiles, op.copies, strict=True):
            into, span = k.add(start, low.scalar(slot)), tile.swizzle.width
            *outer, column = map(low.scalar, place)
            for piece in range(tile.row_bytes // span):
                first = k.add(column, piece * span // tile.size) if piece else column
                destination = Address(into, piece * span * tile.rows)
                k.bulk_tensor_load(destination, low.scalar(box), [first, *reversed(outer)], barrier, space=space)


def _bytes(low: Lowering, op: BoxCopiesOp) -> Reg | int:
    """The bytes of all copies."""
    tiles = [(low.box_rows.get(box), tile_of(slot)) for box, slot in zip(op.boxes, op.slots, strict=True)]
    found: Reg | int = sum(tile.bytes for rows, tile in tiles if rows is None)
    for rows, tile in tiles:
        if rows is not None:
            found = low.k.mad_lo(rows, tile.row_bytes, found)
    return found


def _begin_boxes(low: Lowering, *, apart: bool) -> None:
    """Make earlier stores visible to bulk copies: each thread issues a fence, then all threads synchronize."""
    stored = low.accesses.unpublished and not apart
    unfenced = low.accesses.unfenced
    if stored:
        low.k.emit(FenceProxyAsync("global"))
        low.accesses.unpublished = False
    if unfenced:
        low.fence()
    if stored or unfenced or low.accesses.takes or low.accesses.puts:
        low.barrier(fenced=False)


def _barrier(low: Lowering, place: int) -> Address:
    return Address(low.staged_address(()), place)


def _place(low: Lowering, barrier: SSAValue) -> Address:
    """The address of a barrier with a computed offset."""
    return Address(low.k.add(low.staged_address(()), low.scalar(barrier)))
