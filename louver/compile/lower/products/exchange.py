"""Exchanges the sums of the two ranges of a tile.

Each CTA of a pair receives the sums of half of the columns, and stores these columns. A thread sends registers to the
same thread of the other CTA by `st.async`, 16 bytes at a time if it has as many. The order of registers is
[warpgroup][register / 4][thread]. A barrier counts their bytes and orders them, so no fence of the cluster is needed.
"""

from __future__ import annotations

from louver.compile.lower.products import ranges
from louver.compile.lower.products.combine import ADD, WORD_BYTES
from louver.compile.lower.products.state import Lowering
from louver.ir.sched import ops
from louver.isa.instruction import LANES
from louver.isa.sync import ClusterWait
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Imm, Reg


def exchange(low: Lowering, op: ops.ExchangeOp) -> None:
    """Run the region for all columns of a whole tile, or for half of the columns of a tile that is cut."""
    k, (column,) = low.k, op.body.block.args
    whole = ranges.is_whole(low, low.walk.tile)
    first = low.number(op.column)
    with k.if_(whole, uniform=True):
        low.values[column] = first
        low.lower_block(op.body.block)
    with k.if_(whole, negated=True, uniform=True):
        low.columns //= 2
        _meet(low, op)
        low.values[column] = k.mad_lo(low.named["rank"], low.columns, first)
        low.lower_block(op.body.block)
        low.columns *= 2


def _meet(low: Lowering, op: ops.ExchangeOp) -> None:
    """Exchange sums. Afterwards the first half of each block's registers holds the columns that the CTA stores.

    Rank 0 stores the first half of the columns.
    """
    k, rank = low.k, low.named["rank"]
    half = len(low.sums[0]) // 2
    halves = [[register for block in low.sums for register in block[part * half :][:half]] for part in (0, 1)]
    smem, other = low.named["smem"], k.xor(rank, 1)
    room, sums = (Address(smem, low.barriers[name.data].offset) for name in (op.room, op.sums))

    def peer(base: Reg, offset: int) -> Reg:
        return k.map_shared(k.add(base, offset), other)

    thread = k.and_(low.named["tid"], WARPGROUP_THREADS - 1)
    k.emit(ClusterWait())
    # A warp has waited for its products. The other CTA may now overwrite the operands that they read.
    here = k.setp("eq", "u32", k.and_(thread, LANES - 1), 0)
    k.mbarrier_arrive(Address(peer(smem, room.offset)), remote=True, guard=here)
    size = WORD_BYTES * len(halves[0]) * WARPGROUP_THREADS
    with k.if_(k.setp("eq", "u32", thread, 0)):
        k.mbarrier_arrive_expect(sums, size)
    width = next(each for each in (4, 2, 1) if len(halves[0]) % each == 0)
    own = k.mad_lo(thread, WORD_BYTES * width, k.mad_lo(low.warpgroup, size, smem))
    place = Address(own, low.rings[op.rings.data[0].data].offset)
    there, counted = peer(own, place.offset), Address(peer(smem, sums.offset))
    k.wait(room, Imm(0))
    first = k.setp("eq", "u32", rank, 0)
    with k.if_(first, uniform=True):
        _send(low, there, halves[1], width, counted)
    with k.if_(first, negated=True, uniform=True):
        _send(low, there, halves[0], width, counted)
        for kept, held in zip(*halves, strict=True):
            k.mov(held, into=kept)
    k.wait(sums, Imm(0))
    _add(low, place, halves[0], width)


def _send(low: Lowering, there: Reg, sums: list[Reg], width: int, counted: Address) -> None:
    for index in range(0, len(sums), width):
        place = Address(there, WORD_BYTES * WARPGROUP_THREADS * index)
        low.k.store_async(place, sums[index : index + width], counted)


def _add(low: Lowering, place: Address, sums: list[Reg], width: int) -> None:
    k, (add, _) = low.k, ADD[low.kernel.unit.d]
    for index in range(0, len(sums), width):
        found = k.regs(sums[0].type, width)
        k.load_shared(found, Address(place.base, place.offset + WORD_BYTES * WARPGROUP_THREADS * index))
        for total, addend in zip(sums[index : index + width], found, strict=True):
            k.emit(add, total, total, addend)
