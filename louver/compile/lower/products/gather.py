"""Rows of the dense operand that lists name, copied by all threads of a producer to where boxes would lie.

A thread has one piece of 16 bytes of a line of each box, in a few neighbouring rows of it. Eight neighbouring threads copy a line of 128
bytes, which is one access of all banks, from any row of memory.
"""

from __future__ import annotations

from louver.compile.lower.products.batch_indices import entry_of_metadata
from louver.compile.lower.products.stages import barrier_address
from louver.compile.lower.products.state import Gatherer, ListEntries, Lowering
from louver.formats.dtypes import element_type
from louver.formats.lists import LIST_COLUMNS
from louver.ir.sched.gathered import GatherOp, LoadRowsOp
from louver.ir.sched.types import PointerType
from louver.isa.async_copy import AsyncArrive, AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.swizzle import BANK_LINE, CHUNK
from louver.isa.targets import WARPGROUP_THREADS
from louver.ptx.module import Address, Reg

INDEX_BYTES = 4

VECTOR = 4
"""Entries that one load brings at most."""


def open_gatherer(low: Lowering, op: GatherOp) -> None:
    """Registers that live through a role that gathers."""
    k, span = low.k, op.swizzle.value.data
    _, tile_n, tile_k = low.tile
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
        places.append(k.mad_lo(row, span, k.shl(swizzled, CHUNK.bit_length() - 1)))
    entries = tuple(tuple(k.regs("b32", rows)) for _ in range(op.count.value.data))
    low.listed = ListEntries(first, entries)
    low.gatherer = Gatherer(piece, tuple(places), tile_n * _bytes(op) // span, span, tile_k * span)


def _bytes(op: GatherOp) -> int:
    assert isinstance(op.source.type, PointerType)
    return element_type(op.source.type.element.data).bytes


def load_rows(low: Lowering, op: LoadRowsOp) -> None:
    """Entries of a step, several a load. Ordinary loads, which stay between the barrier operations around them."""
    k, listed = low.k, low.listed
    list_rows = op.list_rows.value.data
    step, ahead = low.number(op.step), op.ahead.value.data
    guard = None
    if ahead:
        step = k.add(step, ahead)
        guard = k.setp("lt", "u32", step, low.end)
    lists = k.div(k.add(low.sizes["M"], list_rows - 1), list_rows)
    pitch = k.and_(k.add(low.sizes["kept"], LIST_COLUMNS - 1), ~(LIST_COLUMNS - 1) & 0xFFFFFFFF)
    column = k.add(k.mul_lo(step, low.tile[2]), listed.first)
    first = k.div(low.number(op.row), list_rows)
    for number, registers in enumerate(listed.entries):
        which = k.min(k.add(first, number) if number else first, k.sub(lists, 1))
        if op.entry is not None:
            which = k.mad_lo(entry_of_metadata(low, low.register(op.entry)), lists, which)
        place = k.add(k.mul_wide(which, pitch), k.widen_u64(column))
        address = k.mad_lo(place, INDEX_BYTES, low.register(op.lists))
        for begin in range(0, len(registers), VECTOR):
            some = registers[begin : begin + VECTOR]
            k.load_global(some, Address(address, begin * INDEX_BYTES), guard=guard)


def gather(low: Lowering, op: GatherOp) -> None:
    """Copies of the rows that the entries name; each thread arrives when its own are complete."""
    k, gatherer, position, size = low.k, low.gatherer, low.position, _bytes(op)
    ring = low.rings[op.ring.data]
    column = k.add(low.number(op.column), k.mul_lo(gatherer.piece, CHUNK // size))
    inside = _inside(low, column, size)
    place = k.widen_u64(column)
    if op.entry is not None:
        place = k.mad_lo(k.widen_u64(low.register(op.entry)), low.sizes["b_batch_pitch"], place)
    stage = k.mad_lo(position.stage, ring.stage_bytes, low.named["smem"])
    for number, entries in enumerate(low.listed.entries):
        begin = ring.offset + number * gatherer.boxes * gatherer.box_bytes
        for entry, offset in zip(entries, gatherer.places, strict=True):
            exists = k.setp("lt", "u32", entry, low.sizes["K"])
            element = k.mad_lo(k.widen_u64(entry), low.sizes["b_pitch"], place)
            source, target = k.mad_lo(element, size, low.register(op.source)), k.add(stage, offset)
            for box, read in enumerate(inside):
                to, at = Address(target, begin + box * gatherer.box_bytes), Address(source, box * gatherer.span)
                k.emit(AsyncCopy(partial=True), to, at, k.selp(read, k.mov(0), exists))
    barriers = low.barriers[op.barriers.data]
    k.emit(AsyncArrive(), Address(barrier_address(low, position.stage), barriers.offset))


def _inside(low: Lowering, column: Reg, size: int) -> list[Reg]:
    """By box, how many bytes of the thread's piece, which begins there in the first box, lie within N."""
    k, found = low.k, list[Reg]()
    for box in range(low.gatherer.boxes):
        begin = k.add(column, box * low.gatherer.span // size) if box else column
        left = k.sub(low.sizes["N"], k.min(begin, low.sizes["N"]))
        found.append(k.mul_lo(k.min(left, CHUNK // size), size))
    return found


def drain(low: Lowering) -> None:
    """A thread waits for its copies before it ends; those of blocks are in groups."""
    if isinstance(low.gathers, GatherOp):
        low.k.emit(AsyncCommit())
    low.k.emit(AsyncWait())
