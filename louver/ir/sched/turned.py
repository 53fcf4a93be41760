"""Operations of the `sched` dialect for gathered rows that a producer turns, part by part (`louver.compile.plan.turned`).

Through pointers to rows (`louver.ir.sched.gathered`), each thread copies blocks to shared memory that no other thread
accesses. One step later it turns them and stores them to the stage. Stores by threads are writes of the generic proxy,
so products after them need a proxy fence.
"""

from __future__ import annotations

from xdsl.dialects.builtin import I32, IntegerAttr, IntegerType, SymbolNameConstraint, UnitAttr
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, opt_prop_def, prop_def


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
