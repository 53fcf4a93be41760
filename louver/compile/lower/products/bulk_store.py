"""The epilogue through shared memory.

Chunks are staged in turn, and bulk copies send a chunk while the next one is staged. Each warpgroup has separate
buffers and a separate named barrier, so it does not wait for the epilogues of others. One barrier for each chunk has
two purposes. After it, the staged chunk may be sent, and the next buffer is free: before the barrier, the sending
thread waits until earlier copies have read that buffer.
"""

from __future__ import annotations

import itertools

from louver.compile.lower.products import stage_matrices, stage_words
from louver.compile.lower.products.epilogue import is_gated
from louver.compile.lower.products.results import Results
from louver.compile.lower.products.stages import eviction, meet
from louver.compile.lower.products.staging import Area, Chunk, Lane, open_area
from louver.compile.lower.products.state import Lowering
from louver.compile.plan.layout import BLOCK_ROWS
from louver.ir.sched import ops
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Reg


def bulk_store(low: Lowering, op: ops.BulkStoreOp) -> None:
    """Stage and send the warpgroup's rows of the tile."""
    k = low.k
    leader = _leader(low)
    with k.if_(leader):
        k.bulk_wait(0)
    meet(low)
    area, lane = open_area(low, op), Lane.of(low)
    chunks = list(area.chunks(len(low.consumer.accumulators), low.columns))
    results: Results | None = None
    for index, chunk in enumerate(chunks):
        if results is None or results.block != chunk.block:
            results = Results.of_block(low, op, chunk.block)
        how = stage_words if area.size == 4 else stage_matrices
        (how.stage_columns if area.transposed else how.stage_rows)(low, area, results, chunk, lane)
        k.fence_proxy_async()
        if _reuses(area, chunks, index + 1):
            with k.if_(leader):
                k.bulk_wait(0)
        meet(low)
        with k.if_(leader):
            _send(low, op, area, chunk)
            # Copies between which there is no wait share a group.
            if chunk is chunks[-1] or _reuses(area, chunks, index + 2):
                k.bulk_commit()


def _reuses(area: Area, chunks: list[Chunk], index: int) -> bool:
    """Whether chunk number `index` exists and uses a buffer that an earlier chunk has used."""
    return area.buffers <= index < len(chunks)


def drain(low: Lowering) -> None:
    """Make the sending thread wait until its copies have read the staging area."""
    with low.k.if_(_leader(low)):
        low.k.bulk_wait(0)


def _leader(low: Lowering) -> Reg:
    return low.k.setp("eq", "u32", low.k.and_(low.named["tid"], WARPGROUP_THREADS - 1), 0)


def _send(low: Lowering, op: ops.BulkStoreOp, area: Area, chunk: Chunk) -> None:
    """Start the copies of a chunk's boxes: along m for an output [N, M], along n for [M, N]."""
    k = low.k
    blocks = len(low.consumer.accumulators)
    row = k.mad_lo(low.warpgroup, BLOCK_ROWS * blocks, low.number(op.row))
    if is_gated(op):
        row = k.shr(row, 1)
    row = k.add(row, area.rows * chunk.block)
    column = k.add(low.number(op.column), chunk.column)
    along, across = (row, column) if area.transposed else (column, row)
    elements, lines = (area.rows, chunk.columns) if area.transposed else (chunk.columns, area.rows)
    boxes = itertools.product(range(elements // area.line_elements), range(0, lines, area.box_lines))
    for panel, line in boxes:
        coordinates = [k.add(along, panel * area.line_elements), k.add(across, line) if line else across]
        if op.entry is not None:
            coordinates.append(low.register(op.entry))
        source = Address(area.start, chunk.offset + panel * area.panel_bytes + line * area.span)
        k.bulk_tensor_store(
            low.register(op.destination), coordinates, source, evict=eviction(op.evict), add=op.add is not None
        )
