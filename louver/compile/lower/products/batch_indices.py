"""Addresses of a batch's matrices in the epilogue, and matrices that an array selects for each tile."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.ir import SSAValue

from louver.compile.lower.products.state import Entries, Lowering
from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp
from louver.ir.sched.types import PointerType
from louver.isa.convert import ConvertInteger
from louver.ptx.module import Address, Reg

WIDTHS = {"s32": 4, "s64": 8}
"""Bytes of an entry's number, by the element type of the array that has it."""


@contextmanager
def entry_in_hand(low: Lowering, op: ops.StoreOp | ops.BulkStoreOp) -> Generator[None]:
    """Meanwhile the pointers to the output and to the epilogue's arrays point to the store's entry, if it has one."""
    if op.entry is None:
        yield
        return
    entry = low.register(op.entry)
    pitches: dict[SSAValue, Reg] = {}
    if isinstance(op, ops.StoreOp):
        pitches[op.destination] = low.sizes["batch_pitch"]
    for each in op.body.block.ops:
        if isinstance(each, MatrixOp) and each.entries is not None:
            pitches[each.matrix] = low.register(each.entries)
    first = {pointer: low.register(pointer) for pointer in pitches}
    low.values.update({pointer: _moved(low, pointer, entry, pitch) for pointer, pitch in pitches.items()})
    yield
    low.values.update(first)


def _moved(low: Lowering, pointer: SSAValue, entry: Reg, pitch: Reg) -> Reg:
    kind = pointer.type
    if not isinstance(kind, PointerType):
        raise TypeError(f"entries of a batch are reached through a pointer, got {kind}")
    k = low.k
    size = element_type(kind.element.data).bytes
    return k.mad_lo(k.mul_lo(k.widen_u64(entry), pitch), size, low.register(pointer))


def entries_of(low: Lowering, op: ops.TilesOp) -> Entries | None:
    """The array that a walk over tiles reads their entries from, if it does."""
    if op.entries is None or op.along is None:
        return None
    kind = op.entries.type
    assert isinstance(kind, PointerType)
    return Entries(low.register(op.entries), WIDTHS[kind.element.data], op.along.data)


def load_entry(low: Lowering, entries: Entries, number: Reg, into: Reg) -> None:
    """The entry of tile `number` along the array's axis. A number that no entry has, negative ones included, becomes the first one
    behind the last entry, of which tensor maps read zeros.

    Nobody writes to the array meanwhile: the launch sees to it. A dependent kernel's may be written until the wait for earlier grids.
    """
    k = low.k
    tile, size = (low.tile[0], "M") if entries.along == "m" else (low.tile[1], "N")
    # Behind the last tile, where a walk ends and where a cluster has more tiles than are left, the array does not go on.
    last = k.div(k.sub(low.sizes[size], 1), tile)
    number = k.min(number, last)
    (found,) = k.regs("b64" if entries.width == 8 else "b32", 1)
    k.load_global(
        [found], Address(k.mad_wide(number, entries.width, entries.address)), read_only=low.kernel.dependent is None
    )
    end = low.sizes["entries"]
    if entries.width == 8:
        (low_bits,) = k.regs("b32", 1)
        k.emit(ConvertInteger("u32", "u64"), low_bits, k.min(found, k.widen_u64(end)))
        found = low_bits
    k.mov(k.min(found, end), into=into)


def entry_of_metadata(low: Lowering, entry: Reg) -> Reg:
    """The entry whose metadata a tile reads: the last one's for a tile of no entry, whose values are zeros."""
    return low.k.min(entry, low.k.sub(low.sizes["entries"], 1)) if "entries" in low.sizes else entry
