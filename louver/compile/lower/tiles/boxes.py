"""Boxes by bulk copies, which one thread begins, and the barriers at which their bytes arrive, which all threads wait for."""

from __future__ import annotations

from xdsl.ir import SSAValue

from louver.compile.lower.tiles.shared import lower_slot
from louver.compile.lower.tiles.state import Lowering, Registers
from louver.ir.tile import BoxCopiesOp, InitBarriersOp, InvalBarriersOp, LocalAllocOp, SlotOp, WaitBarrierOp
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.staging import tile_of
from louver.isa.barrier import MbarrierInit, MbarrierInvalidate
from louver.isa.sync import FenceProxyAsync
from louver.ptx.module import Address, Imm


def lower_memory(low: Lowering, op: LocalAllocOp | SlotOp | InitBarriersOp) -> Registers:
    """Tiles and barriers in shared memory are the number of bytes before them."""
    match op:
        case LocalAllocOp():
            return (low.constant(low.rooms.staged[op.result], "b32"),)
        case SlotOp():
            return lower_slot(low, op)
        case InitBarriersOp():
            return _init_barriers(low, op)


def lower_boxes(low: Lowering, op: BoxCopiesOp | WaitBarrierOp | InvalBarriersOp) -> None:
    """What a loop does with its ring."""
    match op:
        case BoxCopiesOp():
            _copy_boxes(low, op)
        case WaitBarrierOp():
            _wait_for_boxes(low, op)
        case InvalBarriersOp():
            _inval_barriers(low, op)


def _init_barriers(low: Lowering, op: InitBarriersOp) -> Registers:
    """One thread makes them; no thread waits before they are, nor is anything copied that one of them still stores."""
    first = low.rooms.staged[op.result]
    # What threads stored before, to arrays or where the slots are now, bulk copies see after a fence of each thread.
    if low.accesses.stores:
        low.k.emit(FenceProxyAsync("global"))
    if low.accesses.unfenced:
        low.fence()
    for index in range(op.count.value.data):
        low.k.emit(MbarrierInit(), _barrier(low, first + index * BARRIER_BYTES), Imm(1), guard=low.first_thread)
    low.k.fence_mbarrier_init()
    low.barrier(fenced=False)
    return (low.constant(first, "b32"),)


def _inval_barriers(low: Lowering, op: InvalBarriersOp) -> None:
    """Their memory may hold barriers anew. All threads have waited for the last copies: they have met since, in the loop."""
    first = low.rooms.staged[op.first]
    for index in range(op.count.value.data):
        low.k.emit(MbarrierInvalidate(), _barrier(low, first + index * BARRIER_BYTES), guard=low.first_thread)


def _wait_for_boxes(low: Lowering, op: WaitBarrierOp) -> None:
    """Each thread sees what has arrived. They meet before one copies to the slot that another one may still read."""
    low.k.wait(_place(low, op.barrier), low.scalar(op.phase))
    low.accesses.puts = True


def _copy_boxes(low: Lowering, op: BoxCopiesOp) -> None:
    """One thread announces the bytes and copies, row by row as far as the swizzle's span goes."""
    k = low.k
    low.accesses.loads = True
    if op.free is None:
        low.begin_copy()
    tiles = [tile_of(slot) for slot in op.slots]
    barrier, start = _place(low, op.barrier), low.staged_address(())
    condition = low.both(low.scalar(op.pred), low.first_thread)
    assert condition is not None
    with k.if_(condition):
        k.mbarrier_arrive_expect(barrier, sum(tile.bytes for tile in tiles))
        for tile, (box, place, slot) in zip(tiles, op.copies, strict=True):
            into, span = k.add(start, low.scalar(slot)), tile.swizzle.width
            *outer, column = map(low.scalar, place)
            for piece in range(tile.row_bytes // span):
                first = k.add(column, piece * span // tile.size) if piece else column
                destination = Address(into, piece * span * tile.rows)
                k.bulk_tensor_load(destination, low.scalar(box), [first, *reversed(outer)], barrier)


def _barrier(low: Lowering, place: int) -> Address:
    return Address(low.staged_address(()), place)


def _place(low: Lowering, barrier: SSAValue) -> Address:
    """Of a barrier, whose number of bytes before it is computed."""
    return Address(low.k.add(low.staged_address(()), low.scalar(barrier)))
