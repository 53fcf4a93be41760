"""Operations of the `sched` dialect for rows of the dense operand that lists name. A producer copies the rows, or turns them,
part by part (`louver.compile.plan.turned`).

A list serves `list_rows` rows of the left operand, for all steps of K. The rows of a tile are opened once. Entries of
its lists are loaded to registers some steps ahead. Pointers to rows are computed from them, and rows are copied from
the pointers. Copies by threads are writes of the generic proxy, so products after them need a proxy fence.

Rows are turned in two steps. Through pointers to rows, each thread copies blocks to shared memory that no other thread
accesses. One step later it turns them and stores them to the stage. Stores by threads are writes of the generic proxy too.
"""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint, UnitAttr
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
)
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched.types import PointerType


@irdl_op_definition
class OpenRowsOp(IRDLOperation):
    """Find the lists of the tile that begins at `row` and `column`, and the columns from which its rows are copied.

    There are `count` lists, each for `list_rows` rows. Past the last list, the entries of the last list are used.

    list_entry: the entry in a batch of left operands. Their lists follow each other.
    source_entry: the entry in a batch of dense operands.
    """

    name = "sched.open_rows"
    lists = operand_def(PointerType)
    row = operand_def(IntegerType)
    source = operand_def(PointerType)
    column = operand_def(IntegerType)
    list_entry = opt_operand_def(IntegerType)
    source_entry = opt_operand_def(IntegerType)
    count = prop_def(IntegerAttr[I32])
    list_rows = prop_def(IntegerAttr[I32])
    irdl_options = (AttrSizedOperandSegments(as_property=True), ParsePropInAttrDict())
    assembly_format = (
        "$lists `[` $row (`,` `entry` $list_entry^ `:` type($list_entry))? `]` `of` $source `[` $column"
        " (`,` `entry` $source_entry^ `:` type($source_entry))? `]` `count` $count `each` $list_rows"
        " `:` type($lists) `,` type($row) `,` type($source) `,` type($column) attr-dict"
    )


@irdl_op_definition
class LoadRowsOp(IRDLOperation):
    """Load the entries of the tile's lists for step `step` + `ahead` to a set of registers.

    Past the last step nothing is loaded.
    """

    name = "sched.load_rows"
    step = operand_def(IntegerType)
    ahead = prop_def(IntegerAttr[I32])
    set = prop_def(IntegerAttr[I32])
    assembly_format = "`step` $step `plus` $ahead `to` `set` $set `:` type($step) attr-dict"


@irdl_op_definition
class PointRowsOp(IRDLOperation):
    """Compute pointers to the rows that the entries of a set name. The entries must be those of step `step` + `ahead`."""

    name = "sched.point_rows"
    step = operand_def(IntegerType)
    ahead = prop_def(IntegerAttr[I32])
    set = prop_def(IntegerAttr[I32])
    assembly_format = "`step` $step `plus` $ahead `of` `set` $set `:` type($step) attr-dict"


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Copy the rows at the current pointers to the current stage, list after list, in the layout of boxes with this
    swizzle.

    Rows outside K and columns past N are zeros. Every thread of the role copies, and arrives at `barriers` when its
    copies are complete.
    """

    name = "sched.gather"
    count = prop_def(IntegerAttr[I32])
    swizzle = prop_def(IntegerAttr[I32])
    ring = prop_def(SymbolNameConstraint())
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = "`count` $count `to` $ring `swizzle` $swizzle `on` $barriers attr-dict"

    def verify_(self) -> None:
        if self.swizzle.value.data not in (32, 64, 128):
            raise VerifyException(f"rows are gathered in spans of 32, 64 or 128 bytes, got {self.swizzle.value.data}")


@irdl_op_definition
class ProxyFenceOp(IRDLOperation):
    """Make writes of other threads before the last wait visible to the products that follow."""

    name = "sched.proxy_fence"
    assembly_format = "attr-dict"


@irdl_op_definition
class CopyBlocksOp(IRDLOperation):
    """Each thread begins to copy its block of part `part`, from the current pointers, which are for step `step` +
    `ahead`.

    Rows outside K and columns past N are zeros. Past the last step nothing is read.
    """

    name = "sched.copy_blocks"
    step = operand_def(IntegerType)
    part = prop_def(IntegerAttr[I32])
    ahead = prop_def(IntegerAttr[I32])
    ring = prop_def(SymbolNameConstraint())
    assembly_format = "`part` $part `of` `step` $step `plus` $ahead `to` $ring `:` type($step) attr-dict"


@irdl_op_definition
class TurnOp(IRDLOperation):
    """Each thread waits for its block of part `part`, turns it, and stores it to the current stage.

    The layout is that of K-major boxes with this swizzle.

    bytes: bytes of all threads.
    count: lists. They follow each other, with equal numbers of parts.
    last: every thread of the role then arrives at `barriers`, for its stores of all parts.
    """

    name = "sched.turn"
    part = prop_def(IntegerAttr[I32])
    source = prop_def(SymbolNameConstraint())
    last = opt_prop_def(UnitAttr)
    bytes = prop_def(IntegerAttr[I32])
    count = prop_def(IntegerAttr[I32])
    swizzle = prop_def(IntegerAttr[I32])
    ring = prop_def(SymbolNameConstraint())
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = "`part` $part (`last` $last^)? `of` $source `bytes` $bytes `count` $count `to` $ring `swizzle` $swizzle `on` $barriers attr-dict"
