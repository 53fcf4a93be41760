"""The epilogue by way of shared memory: 8×8 matrices staged by stmatrix, whole boxes sent by bulk copies.

The staging area holds, block of 64 rows after block, the boxes of the output's tensor map, in its 128-byte swizzle. One
stmatrix takes four matrices: two column groups (of 8) by two row halves (r and r + 8). Lane 8q + r gives the address of line
r of matrix q, whose half is q & 1 and whose group is g + (q >> 1).
"""

from __future__ import annotations

from dataclasses import dataclass

from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.isa.targets import WARPGROUP_THREADS
from louver.passes.lower.convert import half, stored_pair
from louver.passes.lower.epilogue import (
    Known,
    arrays,
    evaluate,
    first_output_row,
    reads_arrays,
    reads_columns,
    scalars,
    vectors,
)
from louver.passes.lower.state import Lowering
from louver.ptx.module import Address, Reg


@dataclass(frozen=True, slots=True)
class _Line:
    """A row or column that a thread holds: its index, whether the output has it, and what the epilogue reads along it."""

    index: Reg
    inside: Reg
    known: Known


LINE_BYTES = 128
"""Bytes of a staged line: 64 elements of 16 bits, one swizzle span."""

FIRST_BARRIER = 1
"""Named barrier of the first consumer warpgroup; 0 is the CTA's own."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """A lane's part in stmatrix: row half of its matrix, which of the two column groups, and its line."""

    half: Reg
    group: Reg
    line: Reg
    warp: Reg


def bulk_store(low: Lowering, op: ops.BulkStoreOp) -> None:
    """Stage and send the warpgroup's rows of the tile."""
    k = low.k
    drain(low)
    _warpgroup_barrier(low)
    lane = k.and_(low.named["tid"], 31)
    matrix = k.shr(lane, 3)
    place = _Lane(k.and_(matrix, 1), k.shr(matrix, 1), k.and_(lane, 7), k.and_(low.named["warp"], 3))
    numbers = scalars(low, op)
    for block in range(len(low.consumer.accumulators)):
        _stage_block(low, op, block, place, numbers)
    k.fence_proxy_async()
    _warpgroup_barrier(low)
    with k.if_(_leader(low)):
        for block in range(len(low.consumer.accumulators)):
            _send_block(low, op, block)
        k.bulk_commit()


def drain(low: Lowering) -> None:
    """The thread that sends waits until its copies have read the staging area."""
    with low.k.if_(_leader(low)):
        low.k.bulk_wait(0)


def _leader(low: Lowering) -> Reg:
    return low.k.setp("eq", "u32", low.k.and_(low.named["tid"], WARPGROUP_THREADS - 1), 0)


def _warpgroup_barrier(low: Lowering) -> None:
    """Each warpgroup has a barrier of its own, so that one need not wait for another's epilogue."""
    k = low.k
    for index in range(low.consumers):
        with k.if_(k.setp("eq", "u32", low.warpgroup, index), uniform=True):
            k.barrier_sync(FIRST_BARRIER + index, WARPGROUP_THREADS)


def _block_bytes(low: Lowering) -> int:
    _, tile_n, _ = low.tile
    return 64 * tile_n * 2


def _block_start(low: Lowering, op: ops.BulkStoreOp, block: int) -> tuple[Reg, int]:
    """Register and constant part of the address where a block of the warpgroup is staged."""
    blocks = len(low.consumer.accumulators)
    start = low.k.mad_lo(low.warpgroup, blocks * _block_bytes(low), low.named["smem"])
    return start, low.rings[op.ring.data].offset + block * _block_bytes(low)


def _stage_block(low: Lowering, op: ops.BulkStoreOp, block: int, lane: _Lane, numbers: Known) -> None:
    k = low.k
    _, tile_n, _ = low.tile
    start, offset = _block_start(low, op, block)
    rows = _rows(low, op, block, numbers)
    if op.transposed is not None:
        # A line is one column n, 64 rows along it: the chunk is the warp's pair of halves, the line within 8 swizzles it.
        chunk = k.xor(k.add(k.shl(lane.warp, 1), lane.half), lane.line)
        line = k.add(k.shl(lane.group, 3), lane.line)
        base = k.add(k.mad_lo(line, LINE_BYTES, start), k.shl(chunk, 4))
        for group in range(0, tile_n // 8, 2):
            values = _packed(low, op, block, group, rows)
            k.store_matrices(Address(base, offset + group * 8 * LINE_BYTES), values, transpose=True)
        return
    # A line is one row, 64 columns of one box along it.
    row = k.add(k.mad_lo(lane.warp, 16, k.shl(lane.half, 3)), lane.line)
    line = k.mad_lo(row, LINE_BYTES, start)
    for group in range(0, tile_n // 8, 2):
        chunk = k.xor(k.add(lane.group, group % 8), lane.line)
        base = k.add(line, k.shl(chunk, 4))
        values = _packed(low, op, block, group, rows)
        k.store_matrices(Address(base, offset + group // 8 * 64 * LINE_BYTES), values, transpose=False)


def _packed(low: Lowering, op: ops.BulkStoreOp, block: int, group: int, rows: list[_Line]) -> list[Reg]:
    """The four registers of one stmatrix: for two column groups, both halves; neighbouring columns in one register."""
    element = half(op.element.data)
    packed: list[Reg] = []
    for each in (group, group + 1):
        columns = [_column(low, op, 8 * each + pair) for pair in (0, 1)]
        for index, row in enumerate(rows):
            low_column, high_column = (
                evaluate(
                    low,
                    op,
                    low.consumer.accumulators[block][4 * each + 2 * index + side],
                    _known(low, op, row, columns[side]),
                )
                for side in (0, 1)
            )
            packed.append(stored_pair(low, low_column, high_column, element))
    return packed


def _rows(low: Lowering, op: ops.BulkStoreOp, block: int, numbers: Known) -> list[_Line]:
    """Both rows that this thread holds of a block, with the epilogue's vectors along m."""
    k = low.k
    first = first_output_row(low, op)
    rows: list[_Line] = []
    for offset in (0, 8):
        row = k.add(first, 64 * block + offset)
        inside = k.setp("lt", "u32", row, low.sizes["M"])
        rows.append(_Line(row, inside, numbers | vectors(low, op, "m", row, inside)))
    return rows


def _column(low: Lowering, op: ops.BulkStoreOp, offset: int) -> _Line | None:
    """One column that this thread holds, with the epilogue's vectors along n; None where it reads nothing there."""
    k = low.k
    if not reads_columns(op):
        return None
    pair = k.shl(k.and_(low.named["tid"], 3), 1)
    column = k.add(k.add(low.number(op.column), pair), offset)
    inside = k.setp("lt", "u32", column, low.sizes["N"])
    return _Line(column, inside, vectors(low, op, "n", column, inside))


def _known(low: Lowering, op: ops.BulkStoreOp, row: _Line, column: _Line | None) -> Known:
    """What the epilogue reads for one element."""
    if column is None:
        return row.known
    inside = low.k.and_pred(row.inside, column.inside) if reads_arrays(op) else column.inside
    return row.known | column.known | arrays(low, op, row.index, column.index, inside)


def _send_block(low: Lowering, op: ops.BulkStoreOp, block: int) -> None:
    k = low.k
    _, tile_n, _ = low.tile
    blocks = len(low.consumer.accumulators)
    start, offset = _block_start(low, op, block)
    row = k.add(k.mad_lo(low.warpgroup, 64 * blocks, low.number(op.row)), 64 * block)
    target = low.register(op.destination)
    if op.transposed is not None:
        k.bulk_tensor_store(target, [row, low.number(op.column)], Address(start, offset))
        return
    width = LINE_BYTES // element_type(op.element.data).bytes
    for box in range(tile_n // width):
        column = k.add(low.number(op.column), box * width)
        k.bulk_tensor_store(target, [column, row], Address(start, offset + box * 64 * LINE_BYTES))
