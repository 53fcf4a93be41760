"""Operations of the `sched` dialect for rows of the dense operand that lists name: a producer copies them one by one.

A list belongs to `list_rows` rows of the left operand, and the tile's lists to each step of K. A tile's rows are opened once. Entries of its
lists go to registers some steps ahead, become pointers to rows, and say what is copied. Copies of threads are writes of the generic proxy, so
that products behind them need a proxy fence.
"""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    prop_def,
)
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched.types import PointerType


@irdl_op_definition
class OpenRowsOp(IRDLOperation):
    """Find the lists of the tile that begins at `row` and `column`, and the columns that its rows are copied from.

    `count` lists, each for `list_rows` rows. Past the last list its entries stand in for what no row has. list_entry, source_entry: of a batch of
    left operands, whose lists follow each other, and of dense ones.
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
    """Load the entries of step `step` + `ahead` of the tile's lists to a set of registers. Past the last step nothing is loaded."""

    name = "sched.load_rows"
    step = operand_def(IntegerType)
    ahead = prop_def(IntegerAttr[I32])
    set = prop_def(IntegerAttr[I32])
    assembly_format = "`step` $step `plus` $ahead `to` `set` $set `:` type($step) attr-dict"


@irdl_op_definition
class PointRowsOp(IRDLOperation):
    """Make pointers to the rows that a set's entries name, those of step `step` + `ahead`."""

    name = "sched.point_rows"
    step = operand_def(IntegerType)
    ahead = prop_def(IntegerAttr[I32])
    set = prop_def(IntegerAttr[I32])
    assembly_format = "`step` $step `plus` $ahead `of` `set` $set `:` type($step) attr-dict"


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Copy the rows that the pointers in hand show into the stage in hand, list after list, as boxes with that swizzle would lie there.
    A row that is none of K, and columns past N, are zeros.

    Every thread of the role copies, and arrives on `barriers` when its copies are complete.
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
    """Let the products that follow read what other threads' copies have written before the wait in front of this."""

    name = "sched.proxy_fence"
    assembly_format = "attr-dict"
