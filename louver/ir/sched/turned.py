"""Operations of the `sched` dialect for gathered rows that a producer turns, part by part (`louver.compile.plan.turned`).

Through pointers to rows (`louver.ir.sched.gathered`) each thread copies blocks to memory of its own a step before it turns them into
the stage. Stores of threads are writes of the generic proxy, so that products behind them need a proxy fence.
"""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint, UnitAttr
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def


@irdl_op_definition
class CopyBlocksOp(IRDLOperation):
    """Each thread begins to copy its block of part `part`, by the pointers in hand, which are those of step `step` + `ahead`.

    Rows that are none of K, and columns past N, are zeros. Past the last step nothing is read.
    """

    name = "sched.copy_blocks"
    step = operand_def(IntegerType)
    part = prop_def(IntegerAttr[I32])
    ahead = prop_def(IntegerAttr[I32])
    ring = prop_def(SymbolNameConstraint())
    assembly_format = "`part` $part `of` `step` $step `plus` $ahead `to` $ring `:` type($step) attr-dict"


@irdl_op_definition
class TurnOp(IRDLOperation):
    """Each thread waits for its block of part `part`, turns it, and stores it to the stage in hand, as K-major boxes with that swizzle
    would lie there: `bytes` of all threads.

    `count` lists follow each other, each in as many parts. `last`: every thread of the role then arrives on `barriers`, for what it has
    stored of all parts.
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
