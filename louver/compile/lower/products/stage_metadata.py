"""Moves metadata through the ring.

Bulk copies bring the words or picks of a step to the stage. Threads read words to registers.
"""

from __future__ import annotations

from louver.compile.lower.products.batch_indices import entry_of_metadata
from louver.compile.lower.products.stages import barrier_address
from louver.compile.lower.products.state import Lowering
from louver.ir.sched import staged
from louver.isa.bulk import BulkLoad
from louver.isa.memory import Load
from louver.isa.prepack import LOAD_BYTES, WORD_BYTES, columns_per_load
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address


def copy(low: Lowering, op: staged.CopyMetadataOp) -> None:
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


def read(low: Lowering, op: staged.ReadMetadataOp) -> None:
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
