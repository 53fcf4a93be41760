"""Loads entries of lists, computes pointers to the rows of the dense operand that they name, and copies pieces of rows.

All threads of the producer take part. A thread has the same pieces of 16 bytes in a few neighbouring rows of each list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from louver.compile.lower.products.state import Lowering, Pointers, RowFeed, entry_of_metadata
from louver.formats.lists import LIST_COLUMNS
from louver.ir.sched.gathered import GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp
from louver.isa.async_copy import AsyncCommit, AsyncCopy, AsyncWait
from louver.isa.swizzle import CHUNK
from louver.ptx.module import Address, Imm, Reg

INDEX_BYTES = 4

VECTOR = 4
"""The largest number of entries of one load."""


class Piece(NamedTuple):
    """A copy of 16 bytes.

    missing: predicate, whether the row is outside K.
    column: columns from the thread's first piece to this piece.
    """

    to: Address
    source: Address
    missing: Reg
    column: int


def open_feed(low: Lowering, first: Reg, own: Reg, rows: int, size: int) -> None:
    """Open the registers that live during a role that copies rows.

    first: the first of the thread's `rows` neighbouring entries in a step.
    own: the column of a tile at which the thread's first piece begins.
    size: bytes of an element.
    """
    k = low.k
    assert low.gathers is not None
    lists = low.gathers.count.value.data
    sets = max(op.set.value.data for op in low.role.walk() if isinstance(op, LoadRowsOp)) + 1
    entries = [[k.regs("b32", rows) for _ in range(lists)] for _ in range(sets)]
    pitch = k.mul_lo(low.sizes["b_pitch"], size)
    low.feed = RowFeed(first, own, size, pitch, entries, k.regs("b64", lists), k.reg("b64"), k.reg("b32"), k.reg("b32"))


def open_rows(low: Lowering, op: OpenRowsOp) -> None:
    """Compute the addresses of the thread's first entries and first piece, and the columns of the tile."""
    k, feed = low.k, low.feed
    list_rows = op.list_rows.value.data
    lists = k.div(k.add(low.sizes["M"], list_rows - 1), list_rows)
    pitch = k.and_(k.add(low.sizes["kept"], LIST_COLUMNS - 1), ~(LIST_COLUMNS - 1) & 0xFFFFFFFF)
    first = k.div(low.number(op.row), list_rows)
    for number, address in enumerate(feed.lists):
        which = k.min(k.add(first, number) if number else first, k.sub(lists, 1))
        if op.list_entry is not None:
            which = k.mad_lo(entry_of_metadata(low, low.register(op.list_entry)), lists, which)
        place = k.add(k.mul_wide(which, pitch), k.widen_u64(feed.first))
        k.mov(k.mad_lo(place, INDEX_BYTES, low.register(op.lists)), into=address)
    column = low.number(op.column)
    k.mov(k.add(column, feed.own), into=feed.column)
    k.mov(k.add(column, low.tile[1]), into=feed.end)
    place = k.widen_u64(feed.column)
    if op.source_entry is not None:
        place = k.mad_lo(k.widen_u64(low.register(op.source_entry)), low.sizes["b_batch_pitch"], place)
    k.mov(k.mad_lo(place, feed.size, low.register(op.source)), into=feed.base)


def load_rows(low: Lowering, op: LoadRowsOp) -> None:
    """Load entries of a step, several with one load. Ordinary loads stay between the barrier operations around them."""
    k, feed = low.k, low.feed
    step, ahead = low.number(op.step), op.ahead.value.data
    guard = _has_step(low, op)
    bytes_of_step = low.tile[2] * INDEX_BYTES
    for address, registers in zip(feed.lists, feed.entries[op.set.value.data], strict=True):
        place = k.mad_wide(step, bytes_of_step, address) if isinstance(step, Reg) else address
        for begin in range(0, len(registers), VECTOR):
            some = registers[begin : begin + VECTOR]
            k.load_global(some, Address(place, ahead * bytes_of_step + begin * INDEX_BYTES), guard=guard)


def _has_step(low: Lowering, op: LoadRowsOp | PointRowsOp) -> Reg | None:
    """Whether the tile has the step of the operation; None for the current step, which always exists."""
    ahead = op.ahead.value.data
    return low.k.setp("lt", "u32", low.k.add(low.number(op.step), ahead), low.end) if ahead else None


def point_rows(low: Lowering, op: PointRowsOp) -> None:
    """Compute for each row of each list the pointer to the thread's first piece, and whether the row is outside K."""
    k, feed = low.k, low.feed
    entries = feed.entries[op.set.value.data]
    rows = tuple(tuple(k.mad_lo(k.widen_u64(entry), feed.pitch, feed.base) for entry in each) for each in entries)
    missing = tuple(tuple(k.setp("ge", "u32", entry, low.sizes["K"]) for entry in each) for each in entries)
    low.pointers = Pointers(rows, missing, _has_step(low, op))


def copy_pieces(low: Lowering, pieces: Sequence[Piece], guard: Reg | None = None) -> None:
    """Begin copies. If all columns of the tile are inside N, each copy is one instruction."""
    k, feed = low.k, low.feed
    with k.if_(k.setp("le", "u32", feed.end, low.sizes["N"]), uniform=True) as branch:
        for each in pieces:
            k.emit(AsyncCopy(), each.to, each.source, each.missing, guard=guard)
    # ptxas emits eight instructions for a copy of a variable number of bytes.
    with branch.otherwise():
        inside = {column: _inside(low, column) for column in dict.fromkeys(each.column for each in pieces)}
        for each in pieces:
            size = k.selp(Imm(0), inside[each.column], each.missing)
            k.emit(AsyncCopy(partial=True), each.to, each.source, size, guard=guard)


def _inside(low: Lowering, column: int) -> Reg:
    """The bytes inside N of the thread's piece that begins `column` columns after its first one."""
    k, n, size = low.k, low.sizes["N"], low.feed.size
    left = k.sub(n, k.min(k.add(low.feed.column, column), n))
    return k.mul_lo(k.min(left, CHUNK // size), size)


def drain(low: Lowering) -> None:
    """Make each thread wait for its copies before it ends. Copies of blocks are in groups already."""
    if isinstance(low.gathers, GatherOp):
        low.k.emit(AsyncCommit())
    low.k.emit(AsyncWait())
