"""Lowers warpgroup products: their descriptors, operands and groups."""

from __future__ import annotations

from typing import cast

from louver.compile.lower.products.state import Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.types import MapType
from louver.isa.bulk import SwizzleBytes
from louver.isa.swizzle import START_MAX, Swizzle, SwizzledTile, describe
from louver.isa.wgmma import WgmmaCommit, WgmmaFence, WgmmaWait
from louver.ptx.module import Reg


def mma(low: Lowering, op: ops.MmaOp) -> None:
    """One warpgroup product. The first product of each block in a tile ignores the old values of the accumulators."""
    k = low.k
    block = op.block.value.data
    assert low.kernel.mma is not None
    instruction = low.kernel.mma.instruction(0 if op.selector is None else op.selector.value.data)
    words = (
        ()
        if op.set is None or op.word is None
        else (low.consumer.metadata[op.set.value.data][block][op.word.value.data],)
    )
    values, dense = values_tile(low), dense_tile(low, transposed=instruction.transpose_b)
    rows = 64 * len(low.consumer.accumulators)
    k.emit(
        instruction,
        tuple(low.consumer.accumulators[block]),
        _descriptor(low, op.a.data, values, op.a_offset.value.data, (low.warpgroup, rows * values.line_bytes)),
        _descriptor(low, op.b.data, dense, op.b_offset.value.data, own_rows(low, dense)),
        *words,
        _accumulate(low, op),
    )


def _accumulate(low: Lowering, op: ops.MmaOp) -> Reg:
    """scale-d: false for the first product of a block in a tile, in a range, or in a group that is promoted."""
    if op.fresh is not None:
        return low.named["never"]
    if low.consumer.promoted:
        return low.named["always"]
    tile = low.tile_state
    if tile.advanced == 0 and op.b_offset.value.data == 0:
        return low.k.setp("ne", "u32", tile.step, tile.first)
    return low.named["always"]


def _map(low: Lowering, operand: str) -> MapType:
    for argument in low.kernel.body.block.args:
        if isinstance(argument.type, MapType) and argument.type.operand.data == operand:
            return argument.type
    raise ValueError(f"the kernel has no tensor map for operand {operand}")


def has_entries(low: Lowering, operand: str) -> bool:
    """Whether the operand is a batch with an entry for each product. Its tensor map then has a third dimension."""
    return len(_map(low, operand).box) == 3


def values_tile(low: Lowering) -> SwizzledTile:
    """A box of the stored values of a stage: K-major rows of one swizzle span."""
    kind = _map(low, "a")
    return SwizzledTile("k", low.tile[0], kind.span, Swizzle(kind.span))


def dense_tile(low: Lowering, *, transposed: bool) -> SwizzledTile:
    """The dense operand of a stage: boxes of one swizzle span, or gathered rows in the same layout."""
    span = _map(low, "b").span if low.gathers is None else cast("SwizzleBytes", low.gathers.swizzle.value.data)
    size = element_type(low.kernel.unit.b).bytes
    _, tile_n, tile_k = low.tile
    if transposed:
        return SwizzledTile("mn", tile_k, tile_n * size, Swizzle(span))
    return SwizzledTile("k", tile_n, tile_k * size, Swizzle(span))


def own_rows(low: Lowering, dense: SwizzledTile) -> tuple[Reg, int] | None:
    """The number of the list for the warpgroup's rows of the dense operand, and the bytes of a list's rows; None for
    one list.
    """
    lists = 1 if low.gathers is None else low.gathers.count.value.data
    return None if lists == 1 else (low.k.div(low.warpgroup, low.warpgroups // lists), dense.bytes)


def _descriptor(low: Lowering, ring_name: str, tile: SwizzledTile, offset: int, share: tuple[Reg, int] | None) -> Reg:
    """A matrix descriptor: constant fields, and the start address in the current stage, in units of 16 bytes.

    share: the number of the warpgroup's part of the stage, and bytes of a part; None if all warpgroups read the same
    data.
    """
    k = low.k
    ring = low.rings[ring_name]
    constant = describe(tile, 0).encode()
    base = low.named["smem"]
    if low.ranked:
        # A descriptor has other fields at the bits in which an address has the rank.
        base = k.and_(base, START_MAX)
    start = k.shr(base, 4)
    start = k.mad_lo(low.position.stage, ring.stage_bytes >> 4, start)
    if share is not None:
        number, size = share
        start = k.mad_lo(number, size >> 4, start)
    start = k.add(start, (constant & 0xFFFFFFFF) + (ring.offset + offset >> 4))
    return k.pack_b64(start, k.mov(constant >> 32))


def fence(low: Lowering, op: ops.MmaFenceOp) -> None:
    """`wgmma.fence`."""
    low.k.emit(WgmmaFence())


def clear(low: Lowering, op: ops.ClearOp) -> None:
    """Set the sums to zero."""
    for block in low.sums:
        for total in block:
            low.k.mov(0.0, into=total)


def promote(low: Lowering, op: ops.PromoteOp) -> None:
    """Add the accumulators to the promoted sums: one f32 addition for each register."""
    for totals, partials in zip(low.consumer.promoted, low.consumer.accumulators, strict=True):
        for total, partial in zip(totals, partials, strict=True):
            low.k.add_f32(total, partial, into=total)


def commit(low: Lowering, op: ops.MmaCommitOp) -> None:
    """`wgmma.commit_group`."""
    low.k.emit(WgmmaCommit())


def wait_products(low: Lowering, op: ops.MmaWaitOp) -> None:
    """`wgmma.wait_group`."""
    low.k.emit(WgmmaWait(op.pending.value.data))
