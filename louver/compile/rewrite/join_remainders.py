"""join-remainders: computes a remainder from the quotient of the same two numbers, if it exists: x % y = x - x // y *
y.

A division takes about 25 instructions, and the assembler emits one for the quotient and one for the remainder. A
remainder without a quotient does not change. Tiles do not change either, because other passes read facts about the
places of elements from a remainder. Input and output are valid tile IR, after find-chunks and before encodings.
"""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.rewriter import Rewriter

from louver.compile.rewrite.insert import insert, move
from louver.ir.tile.types import as_tensor

_QUOTIENTS: dict[type[Operation], type[Operation]] = {arith.RemSIOp: arith.DivSIOp, arith.RemUIOp: arith.DivUIOp}


def join_remainders(module: ModuleOp) -> None:
    """Rewrite remainders in place."""
    for op in list(module.walk()):
        quotient = _quotient(op)
        if quotient is None:
            continue
        if op.is_before_in_block(quotient):
            move(op, quotient)
        whole, by = op.operands
        times = insert(op, arith.MuliOp(quotient.results[0], by), op).results[0]
        Rewriter.replace_op(op, arith.SubiOp(whole, times))


def _quotient(op: Operation) -> Operation | None:
    """The division of the same numbers as a remainder, in the same block; None without one."""
    wanted = _QUOTIENTS.get(type(op))
    if wanted is None or as_tensor(op.results[0].type) is not None:
        return None
    users = [use.operation for use in op.operands[0].uses]
    return next(
        (each for each in users if type(each) is wanted and each.parent is op.parent and each.operands == op.operands),
        None,
    )
