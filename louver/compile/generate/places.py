"""Gives each operation of schedule IR the source location of the part of the nest that it implements."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Operation

from louver.ir.places import adopt_places
from louver.ir.product import Part
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, ProxyFenceOp
from louver.ir.sched.turned import CopyBlocksOp, TurnOp

_RINGS: Mapping[str, Part] = {"a": "a", "metadata": "a", "b": "b", "d": "store"}


def place(kernel: ops.KernelOp, places: Mapping[Part, LocationAttr]) -> None:
    """Set the locations of a kernel's operations in place. Operations of the epilogue have locations already.

    A computed number gets the location of the operation that uses it.
    """
    for op in kernel.walk():
        part = _part(op)
        if part is not None:
            op.location = places.get(part, op.location)
    adopt_places(kernel)


def _part(op: Operation) -> Part | None:
    match op:
        case ops.KernelOp():
            return "kernel"
        case ops.TilesOp() | ops.NextTileOp():
            return "tiles"
        case ops.RingOp():
            return _RINGS.get(op.sym_name.data)
        case ops.BulkLoadOp() | GatherOp():
            return _RINGS.get(op.ring.data)
        case (
            staged.RowsLeftOp()
            | staged.BoxColumnOp()
            | OpenRowsOp()
            | LoadRowsOp()
            | PointRowsOp()
            | CopyBlocksOp()
            | TurnOp()
        ):
            return "b"
        case staged.CopyMetadataOp() | staged.ReadMetadataOp() | ops.LoadMetadataOp():
            return "a"
        case (
            ops.MmaFenceOp()
            | ops.MmaOp()
            | ops.MmaCommitOp()
            | ops.MmaWaitOp()
            | ops.ClearOp()
            | ops.PromoteOp()
            | ops.FmaOp()
        ):
            return "dot"
        case ops.StoreOp() | ops.BulkStoreOp() | ops.YieldOp() | ops.CombineOp():
            return "store"
        case ops.BarriersOp() | ops.LoopOp() | ops.AcquireOp() | ops.ExpectOp() | ops.InviteOp():
            return "loop"
        case ops.WaitOp() | ops.ReleaseOp() | ops.AdvanceOp() | ProxyFenceOp():
            return "loop"
        case ops.WaitGridsOp():
            return "kernel"
        case _:
            return None
