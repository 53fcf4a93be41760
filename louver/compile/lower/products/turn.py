"""Turns gathered rows with all threads of the producer (`louver.compile.plan.turned`).

Four neighbouring lanes copy 64 bytes of a row, and the eight groups of four lanes in a warp copy eight rows. A *quad*
is the rows of a lane: `ROWS` neighbouring entries of a list. The quads of a warp belong to two chunks of a line, half a
line apart. Lanes of neighbouring pieces store the four columns in different orders. So the 32 words that a warp stores
at a time are in all banks, for each swizzle.
"""

from __future__ import annotations

from collections.abc import Sequence

from louver.compile.lower.products.rows import Piece, copy_pieces, open_feed
from louver.compile.lower.products.stages import barrier_address
from louver.compile.lower.products.state import Lowering, Turner
from louver.compile.plan.turned import PART_BYTES, ROWS, WARP_PIECES, Turned
from louver.ir.sched.gathered import CopyBlocksOp, TurnOp
from louver.isa.async_copy import AsyncCommit, AsyncWait
from louver.isa.instruction import LANES
from louver.isa.swizzle import BANK_LINE, CHUNK
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Imm, Reg

WORDS = CHUNK // ROWS
"""Words of a piece. A word has `ROWS` columns."""

PAIRS = (0x5140, 0x7362)
"""Selectors that interleave the bytes of two rows' words: for the first two columns, and for the last two."""

FOURS = (0x5410, 0x7632)
"""Selectors of halves of two such words: the rows of the first column, and the rows of the second one."""


def open_turner(low: Lowering, op: TurnOp) -> None:
    """Open the registers that live during a role that turns rows."""
    k, span, lists = low.k, op.swizzle.value.data, op.count.value.data
    turned = Turned(low.tile[1], low.tile[2])
    lane, warp = k.and_(low.named["tid"], LANES - 1), k.and_(k.shr(low.named["tid"], 5), 3)
    piece, of_eight = k.and_(lane, WARP_PIECES - 1), k.shr(lane, 2)
    group = k.and_(warp, turned.groups - 1)
    chunk = k.mad_lo(k.shr(of_eight, 2), turned.groups, group)
    word = k.and_(of_eight, WORDS - 1)
    # The pieces of a part are those of the first 64 columns of a row, then those of the next 64.
    column = k.add(k.shl(piece, 4), k.mul_lo(k.div(warp, turned.groups), WARP_PIECES * CHUNK))
    fixed = k.mad_lo(column, span, k.shl(word, 2))
    places = tuple(
        tuple(_place(low, fixed, chunk, k.xor(piece, index) if index else piece, span, odd) for index in range(ROWS))
        for odd in range(2)
    )
    open_feed(low, k.shl(k.mad_lo(chunk, WORDS, word), 2), column, ROWS, 1)
    own = k.mad_lo(k.and_(low.named["tid"], WARPGROUP_THREADS - 1), CHUNK, low.named["smem"])
    selectors = _either(low, PAIRS, piece, 2), _either(low, FOURS, piece, 1)
    low.turner = Turner(turned, lists * turned.parts, own, places, *selectors)


def _place(low: Lowering, fixed: Reg, chunk: Reg, column: Reg, span: int, odd: int) -> Reg:
    """Bytes from the first column of a part to a word of the lane: for `column` of four, or (odd) of the next four."""
    k = low.k
    line = k.div(k.add(column, ROWS * odd) if odd else column, BANK_LINE // span)
    swizzled = k.xor(chunk, k.and_(line, span // CHUNK - 1))
    return k.add(k.mad_lo(column, span, k.shl(swizzled, 4)), fixed)


def _either(low: Lowering, selectors: Sequence[int], piece: Reg, bit: int) -> tuple[Reg, Reg]:
    """Both selectors. Lanes whose piece has the bit use them in reverse order."""
    k = low.k
    first, second = map(Imm, selectors)
    is_set = k.setp("ne", "u32", k.and_(piece, bit), 0)
    return k.selp(second, first, is_set), k.selp(first, second, is_set)


def copy_blocks(low: Lowering, op: CopyBlocksOp) -> None:
    """Begin a group of the thread's copies.

    A group may be empty, so that the number of pending groups is always the same.
    """
    pointers, turner = low.pointers, low.turner
    part, ring = op.part.value.data, low.rings[op.ring.data]
    number, index = divmod(part, turner.turned.parts)
    column = index * turner.turned.columns
    pieces = [
        Piece(Address(turner.own, ring.offset + _own(part, row)), Address(pointer, column), missing, column)
        for row, (pointer, missing) in enumerate(zip(pointers.rows[number], pointers.missing[number], strict=True))
    ]
    copy_pieces(low, pieces, pointers.more)
    low.k.emit(AsyncCommit())


def _own(part: int, row: int) -> int:
    """Bytes from a thread's first piece to another one. Pieces of neighbouring threads are contiguous in a row."""
    return part * PART_BYTES + row * WARPGROUP_THREADS * CHUNK


def turn(low: Lowering, op: TurnOp) -> None:
    """Turn a block, and store words of four rows, in the lane's order of columns."""
    k, turner, ring, stage = low.k, low.turner, low.rings[op.ring.data], low.position.stage
    part, span = op.part.value.data, op.swizzle.value.data
    base = k.mad_lo(stage, ring.stage_bytes, low.named["smem"])
    targets = [[k.add(base, place) for place in each] for each in turner.places]
    begin = ring.offset + part * op.bytes.value.data
    k.emit(AsyncWait(turner.parts - 1))
    block = [k.regs("b32", WORDS) for _ in range(ROWS)]
    for row, registers in enumerate(block):
        k.load_shared(registers, Address(turner.own, low.rings[op.source.data].offset + _own(part, row)))
    for word, rows in enumerate(zip(*block, strict=True)):
        for target, turned in zip(targets[word % 2], _turned(low, rows), strict=True):
            k.store_shared(Address(target, begin + word * ROWS * span), turned)
    if op.last is not None:
        k.mbarrier_arrive(Address(barrier_address(low, stage), low.barriers[op.barriers.data].offset))


def _turned(low: Lowering, rows: Sequence[Reg]) -> list[Reg]:
    k, turner = low.k, low.turner
    a, b, c, d = rows
    pairs = [(k.permute(a, b, each), k.permute(c, d, each)) for each in turner.pairs]
    return [k.permute(upper, lower, each) for upper, lower in pairs for each in turner.fours]
