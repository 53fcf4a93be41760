"""Copies rows of the dense operand that lists name.

All threads of the producer copy them to the places that boxes would have. A thread copies the same piece of 16 bytes of
a few neighbouring rows of each box. Eight neighbouring threads copy a line of 128 bytes from any row of memory. Their
stores access all banks once.
"""

from __future__ import annotations

from louver.compile.lower.products.rows import Piece, copy_pieces, open_feed
from louver.compile.lower.products.stages import barrier_address
from louver.compile.lower.products.state import Gatherer, Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched.gathered import GatherOp
from louver.isa.async_copy import AsyncArrive
from louver.isa.swizzle import BANK_LINE, CHUNK
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Reg


def open_gatherer(low: Lowering, op: GatherOp) -> None:
    """Open the registers that live during a role that gathers."""
    k, span = low.k, op.swizzle.value.data
    _, tile_n, tile_k = low.tile
    size = element_type(low.kernel.unit.b).bytes
    pieces = span // CHUNK
    rows = tile_k * pieces // WARPGROUP_THREADS
    thread = k.and_(low.named["tid"], WARPGROUP_THREADS - 1)
    piece = k.and_(thread, pieces - 1)
    first = k.mul_lo(k.shr(thread, pieces.bit_length() - 1), rows)
    places: list[Reg] = []
    for index in range(rows):
        row = k.add(first, index) if index else first
        line = k.shr(row, (BANK_LINE // span).bit_length() - 1) if span < BANK_LINE else row
        swizzled = k.xor(piece, k.and_(line, pieces - 1))
        place = k.mad_lo(row, span, k.shl(swizzled, CHUNK.bit_length() - 1))
        places.append(k.add(place, low.named["smem"]))
    open_feed(low, first, k.mul_lo(piece, CHUNK // size), rows, size)
    low.gatherer = Gatherer(tuple(places), tile_n * size // span, span, tile_k * span)


def gather(low: Lowering, op: GatherOp) -> None:
    """Copy the rows at the pointers. Each thread arrives at the barrier when its copies are complete."""
    k, gatherer, pointers, stage = low.k, low.gatherer, low.pointers, low.position.stage
    ring = low.rings[op.ring.data]
    targets = [k.mad_lo(stage, ring.stage_bytes, place) for place in gatherer.places]
    pieces: list[Piece] = []
    for number, (rows, missing) in enumerate(zip(pointers.rows, pointers.missing, strict=True)):
        begin = ring.offset + number * gatherer.boxes * gatherer.box_bytes
        for target, row, absent in zip(targets, rows, missing, strict=True):
            for box in range(gatherer.boxes):
                to, source = Address(target, begin + box * gatherer.box_bytes), Address(row, box * gatherer.span)
                pieces.append(Piece(to, source, absent, box * gatherer.span // low.feed.size))
    copy_pieces(low, pieces)
    k.emit(AsyncArrive(), Address(barrier_address(low, stage), low.barriers[op.barriers.data].offset))
