"""Computes addresses of a batch's matrices in the epilogue, and reads the entry that an array selects for each tile."""

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
"""Bytes of an entry number, by the element type of its array."""


@contextmanager
def entry_in_hand(low: Lowering, op: ops.StoreOp | ops.BulkStoreOp) -> Generator[None]:
    """Within the context, pointers to the output and to arrays of the epilogue point to the entry of the store, if it
    has one.
    """
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
    """The array from which a walk over tiles reads the entry of each tile; None if there is no such array."""
    if op.entries is None or op.along is None:
        return None
    kind = op.entries.type
    assert isinstance(kind, PointerType)
    return Entries(low.register(op.entries), WIDTHS[kind.element.data], op.along.data)


def load_entry(low: Lowering, entries: Entries, number: Reg, into: Reg) -> None:
    """Load the entry of tile `number` along the axis of the array.

    An invalid number, also a negative one, becomes the number of entries. Tensor maps read zeros there. The launch
    ensures that nothing writes to the array during the kernel. In a dependent kernel, earlier grids may write to it
    until the wait for them.
    """
    k = low.k
    tile, size = (low.tile[0], "M") if entries.along == "m" else (low.tile[1], "N")
    # The array ends with the last tile. A walk may go further at its end, or if a cluster has more tiles than remain.
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
    """The entry whose metadata a tile reads. A tile without an entry reads those of the last one; its values are zeros."""
    return low.k.min(entry, low.k.sub(low.sizes["entries"], 1)) if "entries" in low.sizes else entry
