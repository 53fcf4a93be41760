"""Operations of the `sched` dialect for metadata in stages, and for warpgroups that fill the ring themselves."""

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
    result_def,
    traits_def,
)
from xdsl.traits import HasParent, NoTerminator
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched import ops
from louver.ir.sched.types import PointerType, SizeType


@irdl_op_definition
class OneThreadOp(IRDLOperation):
    """The first thread of the warpgroup runs the region, which begins copies.

    Other threads continue, to the wait for the copies. If the region waits for an event, other threads know of the
    event when the copies after it have arrived.
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
    """Begin copies of the metadata words of K step `step` to the current stage, or of the picks of rows of b.

    There is one copy for each 64 rows of the tile. Rows past the last block of 64 get the words of the last block.
    Their values are zeros, so any legal codes are correct.

    row: the first row of the tile.
    entry: the entry in a batch of sparse operands. Their blocks follow each other.
    bytes: bytes of all copies.
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


@irdl_op_definition
class RowsLeftOp(IRDLOperation):
    """The rows of a tile that lie in the matrix: `size` - `first`, at most `most`."""

    name = "sched.rows_left"
    size = operand_def(SizeType)
    first = operand_def(IntegerType)
    most = prop_def(IntegerAttr[I32])
    rows = result_def(IntegerType)
    assembly_format = "$size `from` $first `most` $most `:` type($size) `,` type($first) `->` type($rows) attr-dict"


@irdl_op_definition
class BoxColumnOp(IRDLOperation):
    """The first column of a box: `first` + `offset` if it lies in the matrix of `size` columns.

    Otherwise the first column of the last box of `width` columns that lies wholly in the matrix, or 0 if there is none.
    """

    name = "sched.box_column"
    size = operand_def(SizeType)
    first = operand_def(IntegerType)
    offset = prop_def(IntegerAttr[I32])
    width = prop_def(IntegerAttr[I32])
    column = result_def(IntegerType)
    assembly_format = (
        "$first `plus` $offset `width` $width `of` $size `:` type($size) `,` type($first) `->` type($column) attr-dict"
    )


def filled_rings(scope: Operation, barriers: str) -> set[str]:
    """The rings to which operations in `scope` copy, with bytes that these barriers count."""
    copies = (op for op in scope.walk() if isinstance(op, ops.BulkLoadOp | CopyMetadataOp))
    return {op.ring.data for op in copies if op.barriers.data == barriers}


@irdl_op_definition
class ReadMetadataOp(IRDLOperation):
    """Load the metadata words of the current stage to register set `set`, from word 0 on, for every block of 64 rows."""

    name = "sched.read_metadata"
    ring = prop_def(SymbolNameConstraint())
    set = prop_def(IntegerAttr[I32])
    assembly_format = "$ring `set` $set attr-dict"
