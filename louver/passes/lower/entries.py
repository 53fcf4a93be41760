"""Entries of a batch in the epilogue: while one is stored, what has entries is at the address of that one."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from xdsl.ir import SSAValue

from louver.formats.dtypes import element_type
from louver.ir.sched import ops
from louver.ir.sched.epilogue import MatrixOp
from louver.ir.sched.types import PointerType
from louver.passes.lower.state import Lowering
from louver.ptx.module import Reg


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
