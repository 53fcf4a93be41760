"""Lowers barriers and bulk copies of one stage, and moves metadata through it.

Bulk copies bring the words or picks of a step to the stage. Threads read words to registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from xdsl.dialects.builtin import StringAttr

from louver.compile.lower.products.state import Lowering, entry_of_metadata
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import ProxyFenceOp
from louver.isa.bulk import BulkLoad, Eviction
from louver.isa.instruction import Instruction
from louver.isa.memory import Load
from louver.isa.metadata import LOAD_BYTES, WORD_BYTES, columns_per_load
from louver.isa.sync import BarrierSync
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Imm, Reg

FIRST_BARRIER = 1
"""The named barrier of the first consumer warpgroup. Barrier 0 is for the whole CTA."""


def eviction(evict: StringAttr | None) -> Eviction | None:
    """The eviction priority of an operation, which has been verified."""
    return None if evict is None else cast(Eviction, evict.data)


def meet(low: Lowering, form: Callable[[int, int], Instruction] = BarrierSync, *arguments: Reg) -> None:
    """Synchronize the threads of each warpgroup at its named barrier.

    form: makes the instruction from the number and the threads of the barrier.
    """
    k = low.k
    for index in range(low.warpgroups):
        with k.if_(k.setp("eq", "u32", low.warpgroup, index), uniform=True):
            k.emit(form(FIRST_BARRIER + index, WARPGROUP_THREADS), *arguments)


def barrier_address(low: Lowering, stage: Reg) -> Reg:
    """The address of the barrier of `stage`, without the constant offset of the barriers."""
    return low.k.mad_lo(stage, 8, low.named["smem"])


def acquire(low: Lowering, op: ops.AcquireOp) -> None:
    """Wait until the stage is free.

    In the first round every stage is free: a wait for the phase before the first one ends at once.
    """
    k, position = low.k, low.position
    address = barrier_address(low, position.stage)
    k.wait(Address(address, low.barriers[op.barriers.data].offset), k.xor(position.parity, 1))


def invite(low: Lowering, op: ops.InviteOp) -> None:
    """Arrive in the other CTA of the cluster: one message between producers replaces one message from each consumer
    warp.
    """
    k = low.k
    address = k.add(barrier_address(low, low.position.stage), low.barriers[op.barriers.data].offset)
    k.mbarrier_arrive(Address(k.map_shared(address, k.xor(low.named["rank"], 1))), remote=True)


def expect(low: Lowering, op: ops.ExpectOp) -> None:
    """Arrive, and announce the bytes of the rings that the role fills. Any CTA of the cluster may send them."""
    address = barrier_address(low, low.position.stage)
    sizes = {ring: low.rings[ring].stage_bytes for ring in staged.filled_rings(low.role, op.barriers.data)}
    size: Reg | int = sum(sizes.values())
    if op.rows is not None:
        _, tile_n, _ = low.tile
        size = low.k.mad_lo(low.number(op.rows), sizes["b"] // tile_n, size - sizes["b"])
    low.k.mbarrier_arrive_expect(Address(address, low.barriers[op.barriers.data].offset), size)


def wait(low: Lowering, op: ops.WaitOp) -> None:
    """Wait for the stage's copies, or for the cluster's invitation to send them."""
    address = barrier_address(low, low.position.stage)
    low.k.wait(Address(address, low.barriers[op.barriers.data].offset), low.position.parity)


def rows_left(low: Lowering, op: staged.RowsLeftOp) -> None:
    """The rows of the tile inside the matrix."""
    k = low.k
    low.values[op.rows] = k.min(k.sub(low.number(op.size), low.number(op.first)), op.most.value.data)


def box_column(low: Lowering, op: staged.BoxColumnOp) -> None:
    """The column of a box in the matrix."""
    k, size, width = low.k, low.number(op.size), op.width.value.data
    column = k.add(low.number(op.first), op.offset.value.data)
    whole = k.div(size, width)
    last = k.mul_lo(k.sub(whole, k.min(whole, 1)), width)
    low.values[op.column] = k.selp(column, last, k.setp("lt", "u32", column, size))


def proxy_fence(low: Lowering, op: ProxyFenceOp) -> None:
    """`fence.proxy.async`."""
    low.k.fence_proxy_async()


def release(low: Lowering, op: ops.ReleaseOp) -> None:
    """Make one lane of each warp arrive at the empty barrier of its CTA.

    The producer then invites the other CTAs of the cluster. The wait of a warp covers only its part of the products, so
    each warp arrives.
    """
    k, position, tile = low.k, low.position, low.tile_state
    lag = op.lag.value.data
    stage = position.stage if lag == 0 else position.previous
    selected = k.setp("eq", "u32", k.and_(low.named["tid"], 31), 0)
    if lag > tile.advanced:
        missing = lag - tile.advanced
        begun = k.setp("ge", "u32", tile.step, missing if isinstance(tile.first, int) else k.add(tile.first, missing))
        selected = k.and_pred(selected, begun)
    barriers = low.barriers[op.barriers.data]
    k.mbarrier_arrive(Address(barrier_address(low, stage), barriers.offset), guard=selected)


def bulk_load(low: Lowering, op: ops.BulkLoadOp) -> None:
    """Begin a tensor copy to the current stage."""
    k, position = low.k, low.position
    ring = low.rings[op.ring.data]
    destination = k.mad_lo(position.stage, ring.stage_bytes, low.named["smem"])
    offset = ring.offset + op.offset.value.data
    coordinates: list[Reg | Imm] = [low.number(value) for value in op.coordinates]
    mask = None
    if op.multicast is not None:
        axis, elements, size = (value.value.data for value in op.multicast)
        coordinates[axis] = k.mad_lo(low.named["rank"], elements, coordinates[axis])
        destination = k.mad_lo(low.named["rank"], size, destination)
        mask = (1 << low.cluster) - 1
    barriers, source = low.barriers[op.barriers.data], low.register(op.map)
    if op.tail is not None and op.rows is not None:
        _, tile_n, _ = low.tile
        source = k.selp(low.register(op.tail), source, k.setp("lt", "u32", low.number(op.rows), tile_n))
    k.bulk_tensor_load(
        Address(destination, offset),
        source,
        coordinates,
        Address(barrier_address(low, position.stage), barriers.offset),
        multicast=mask,
        evict=eviction(op.evict),
    )


def copy_metadata(low: Lowering, op: staged.CopyMetadataOp) -> None:
    """Begin one copy of contiguous words for each 64 rows of the tile."""
    k = low.k
    rows, _, _ = low.tile
    blocks = rows // 64
    size = op.bytes.value.data // blocks
    steps = low.named["steps"]
    if low.kernel.unit.sparse:
        columns = columns_per_load(low.kernel.unit.a)
        groups = k.shr(k.add(low.depth, columns - 1), columns.bit_length() - 1)
        steps = k.mul_lo(groups, LOAD_BYTES // size)
    last = k.shr(k.sub(low.sizes["M"], 1), 6)
    first = k.shr(low.number(op.row), 6)
    ring, barriers = low.rings[op.ring.data], low.barriers[op.barriers.data]
    stage = k.mad_lo(low.position.stage, ring.stage_bytes, low.named["smem"])
    barrier = Address(barrier_address(low, low.position.stage), barriers.offset)
    step = k.widen_u64(low.number(op.step))
    for block in range(blocks):
        block_index = k.min(k.add(first, block), last)
        if op.entry is not None:
            block_index = k.mad_lo(entry_of_metadata(low, low.register(op.entry)), k.add(last, 1), block_index)
        index = k.add(k.mul_wide(block_index, steps), step)
        source = k.add(low.register(op.metadata), k.shl(index, size.bit_length() - 1))
        k.emit(BulkLoad(), Address(stage, ring.offset + block * size), Address(source), size, barrier)


def read_metadata(low: Lowering, op: staged.ReadMetadataOp) -> None:
    """Load each thread's words for the blocks of the warpgroup."""
    k, consumer = low.k, low.consumer
    ring = low.rings[op.ring.data]
    rows, _, _ = low.tile
    size = ring.stage_bytes // (rows // 64)
    own = consumer.metadata[op.set.value.data]
    start = k.mad_lo(low.position.stage, ring.stage_bytes, low.named["smem"])
    start = k.mad_lo(low.warpgroup, len(own) * size, start)
    start = k.mad_lo(k.and_(low.named["tid"], WARPGROUP_THREADS - 1), 4, start)
    for block, registers in enumerate(own):
        for word, register in enumerate(registers[: size // WORD_BYTES]):
            k.emit(Load("shared", "b32"), register, Address(start, ring.offset + block * size + word * WORD_BYTES))
