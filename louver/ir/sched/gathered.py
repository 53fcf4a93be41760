"""Operations of the `sched` dialect for rows of the dense operand that lists name: a producer copies them one by one.

A list belongs to `list_rows` rows of the left operand, and the tile's lists to each step of K. Copies of threads are writes of the
generic proxy, so that products behind them need a proxy fence.
"""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_operand_def, prop_def
from xdsl.utils.exceptions import VerifyException

from louver.ir.sched.types import PointerType


@irdl_op_definition
class LoadRowsOp(IRDLOperation):
    """Load the entries of step `step` + `ahead` of the tile's lists to registers. The tile begins at `row`.

    `count` lists, each for `list_rows` rows. Past the last step nothing is loaded. Past the last list its entries stand in for what no
    row has. entry: of a batch of left operands, whose lists follow each other.
    """

    name = "sched.load_rows"
    lists = operand_def(PointerType)
    row = operand_def(IntegerType)
    step = operand_def(IntegerType)
    entry = opt_operand_def(IntegerType)
    count = prop_def(IntegerAttr[I32])
    list_rows = prop_def(IntegerAttr[I32])
    ahead = prop_def(IntegerAttr[I32])
    assembly_format = (
        "$lists `[` $row `,` $step `plus` $ahead `]` (`entry` $entry^ `:` type($entry))? `count` $count `of` $list_rows"
        " `:` type($lists) `,` type($row) `,` type($step) attr-dict"
    )


@irdl_op_definition
class GatherOp(IRDLOperation):
    """Copy the rows that the loaded entries name, from column `column` on, into the stage in hand, list after list, as boxes with
    that swizzle would lie there. A row that is none of K, and columns past N, are zeros.

    Every thread of the role copies, and arrives on `barriers` when its copies are complete. entry: of a batch.
    """

    name = "sched.gather"
    source = operand_def(PointerType)
    column = operand_def(IntegerType)
    entry = opt_operand_def(IntegerType)
    count = prop_def(IntegerAttr[I32])
    swizzle = prop_def(IntegerAttr[I32])
    ring = prop_def(SymbolNameConstraint())
    barriers = prop_def(SymbolNameConstraint())
    assembly_format = (
        "$source `[` $column `]` (`entry` $entry^ `:` type($entry))? `count` $count `to` $ring `swizzle` $swizzle `on` $barriers"
        " `:` type($source) `,` type($column) attr-dict"
    )

    def verify_(self) -> None:
        if self.swizzle.value.data not in (32, 64, 128):
            raise VerifyException(f"rows are gathered in spans of 32, 64 or 128 bytes, got {self.swizzle.value.data}")


@irdl_op_definition
class ProxyFenceOp(IRDLOperation):
    """Let the products that follow read what other threads' copies have written before the wait in front of this."""

    name = "sched.proxy_fence"
    assembly_format = "attr-dict"
