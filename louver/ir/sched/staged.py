"""Operations of the `sched` dialect for metadata that comes through the ring, and for warpgroups that feed their own ring."""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint
from xdsl.ir import Operation
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.traits import HasParent, NoTerminator
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched import ops
from louver.ir.sched.types import PointerType


@irdl_op_definition
class OneThreadOp(IRDLOperation):
    """The warpgroup's first thread runs the region, which begins copies; the others go on, to the wait for them if they use them.

    Where the one thread waits for something, that wait is part of the rule: the others know of it when the copies that came after
    have arrived.
    """

    name = "sched.one_thread"
    body = region_def("single_block")
    traits = traits_def(NoTerminator(), HasParent(ops.LoopOp))
    assembly_format = "$body attr-dict"

    def verify_(self) -> None:
        if not any(isinstance(op, ops.AcquireOp | ops.WaitOp) for op in self.body.block.ops):
            return
        expected = {op.barriers.data for op in self.body.block.ops if isinstance(op, ops.ExpectOp)}
        following = self.next_op
        if not isinstance(following, ops.WaitOp) or following.barriers.data not in expected:
            raise VerifyException(
                "a sched.wait must follow a region of one thread, on barriers that the region expects bytes "
                f"on, {sorted(expected)}, got {following}"
            )


@irdl_op_definition
class CopyMetadataOp(IRDLOperation):
    """Start copies of the metadata words of K step `step` for the tile's rows, which begin at `row`, into the stage in hand: or of the
    rows of b that they pick.

    One copy for each 64 rows, `bytes` in all.
    entry: of a batch of sparse operands, whose blocks follow each other. Rows past the last block of 64 get the last block's words: their values are
    zeros, and any legal codes will do.
    """

    name = "sched.copy_metadata"
    metadata = operand_def(PointerType)
    row = operand_def(IntegerType)
    step = operand_def(IntegerType)
    entry = opt_operand_def(IntegerType)
    ring = prop_def(SymbolNameConstraint())
    bytes = prop_def(IntegerAttr[I32])
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = (
        "$metadata `[` $row `,` $step `]` (`entry` $entry^ `:` type($entry))? `to` $ring `bytes` $bytes `on` $barriers"
        " `:` type($metadata) `,` type($row) `,` type($step) attr-dict"
    )


def filled_rings(scope: Operation, barriers: str) -> set[str]:
    """Rings that the operations in `scope` copy into, of which these barriers count the bytes."""
    copies = (op for op in scope.walk() if isinstance(op, ops.BulkLoadOp | CopyMetadataOp))
    return {op.ring.data for op in copies if op.barriers.data == barriers}


@irdl_op_definition
class ReadMetadataOp(IRDLOperation):
    """Load the metadata words of the stage in hand into register set `set`, from word 0 on, for every block of 64 rows."""

    name = "sched.read_metadata"
    ring = prop_def(SymbolNameConstraint())
    set = prop_def(IntegerAttr[I32])
    assembly_format = "$ring `set` $set attr-dict"
