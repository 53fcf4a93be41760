"""Facts that the generator derives once from the nest, the schedule and the target.

Each operation of schedule IR gets the source location of the part of the nest that it implements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Operation

from louver.compile.plan.layout import OperandLayout, OutputLayout, blocks_bytes
from louver.compile.plan.schedule import Schedule, entry_sets, list_rows, lists_of
from louver.ir.product import Part, ProductNest
from louver.ir.refusal import adopt_places
from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import CopyBlocksOp, GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, ProxyFenceOp, TurnOp
from louver.isa.metadata import WORDS, columns_per_load
from louver.isa.targets import Target
from louver.isa.wgmma import Wgmma

SETS = 2
"""Sets of metadata registers. One is filled while products read the other."""

UNROLL = 4
"""Steps of the main loop's body if no loads of metadata decide it; a power of two."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The input of the generator.

    d: the staged output; None for direct stores. mma: the instruction; None on CUDA cores.
    """

    nest: ProductNest
    schedule: Schedule
    target: Target
    a: OperandLayout
    b: OperandLayout
    d: OutputLayout | None
    mma: Wgmma | None

    @property
    def lifted(self) -> bool:
        """Whether products read metadata."""
        return self.nest.a.selection.lifted

    @property
    def indexed(self) -> bool:
        """Whether the columns of the left operand are rows of K that the operand names."""
        return self.nest.a.selection.indexed

    @property
    def gathers(self) -> bool:
        """Whether rows of the dense operand are gathered."""
        return self.lists > 0

    @property
    def list_rows(self) -> int:
        """Rows of the left operand that share a list."""
        assert self.nest.a.pattern is not None
        return list_rows(self.nest.a.pattern, self.schedule)

    @property
    def lists(self) -> int:
        """The number of lists of a tile; 0 if no rows are gathered."""
        return lists_of(self.nest.a.pattern, self.schedule)

    @property
    def sets(self) -> int:
        """Sets of registers that hold entries of lists. The body of the producer's loop has as many steps."""
        return entry_sets(self.schedule, self.lists, turned=self.nest.turns)

    @property
    def blocks(self) -> int:
        """Bytes of the blocks that the producer's threads turn; 0 if they turn none."""
        return blocks_bytes(self.schedule, self.lists) if self.nest.turns else 0

    @property
    def tails(self) -> bool:
        """Whether the dense operand of a last column of tiles is copied by boxes with fewer rows."""
        return self.b.major == "k" and not self.gathers and not self.shared

    @property
    def word_columns(self) -> int:
        """Dense columns for which one metadata word of a lane is enough."""
        return columns_per_load(self.nest.a.element) // WORDS

    @property
    def words(self) -> int:
        """Metadata words that a lane needs for a K step of one block of 64 rows."""
        return self.schedule.tile.k // self.word_columns

    @property
    def steps_per_load(self) -> int:
        """K steps that one load of metadata from global memory covers."""
        return WORDS // self.words

    @property
    def unroll(self) -> int:
        """Steps of the main loop's body. With metadata, they use both metadata sets once."""
        return 2 * self.steps_per_load if self.lifted else UNROLL

    @property
    def group(self) -> int:
        """Steps whose sums are promoted together; 0 without promotion. It divides the steps of the main loop's body."""
        if self.nest.promoted is None:
            return 0
        steps = min(self.nest.promoted // self.schedule.tile.k, self.unroll)
        return 1 << steps.bit_length() - 1

    @property
    def staged(self) -> bool:
        """Whether stages hold the metadata of their step, or the numbers of the rows that threads pick."""
        return (self.lifted or self.indexed) and self.schedule.ring.metadata != "global"

    @property
    def loaded(self) -> bool:
        """Whether metadata is loaded from global memory directly to registers."""
        return self.lifted and not self.staged

    @property
    def metadata_barriers(self) -> str:
        """The barriers that track the arrival of a stage's metadata."""
        return "metadata_full" if self.schedule.ring.metadata == "barrier" else "full"

    @property
    def shared(self) -> bool:
        """Whether CTAs of a cluster share each tile of the dense operand."""
        return self.schedule.order.cluster > 1


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
