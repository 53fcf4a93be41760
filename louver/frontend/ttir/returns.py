"""Kernels with early returns: the code after `if …: return` becomes the other side of a structured branch. Triton emits
several blocks only for such a kernel. Each block has one predecessor, so the blocks form a tree.
"""

from __future__ import annotations

from xdsl.dialects import cf, scf
from xdsl.ir import Block, Operation, Region
from xdsl.rewriter import InsertPoint, Rewriter

from louver.ir.refusal import unsupported
from louver.ir.tile import FuncOp, ReturnOp


def nest_returns(function: FuncOp) -> None:
    """Rewrite a kernel's body in place to one block with structured branches. Rejects blocks with several predecessors."""
    blocks = list(function.body.blocks)
    if len(blocks) < 2:
        return
    entered: set[Block] = set()
    for block in blocks:
        end = block.last_op
        for successor in () if end is None else end.successors:
            if not isinstance(end, cf.ConditionalBranchOp) or successor in entered or successor.args:
                raise unsupported(
                    "the code after an early return must be reached from one place",
                    end or function,
                    "put each early return into an if of the kernel itself",
                )
            entered.add(successor)
    _close(blocks[0], returns=True)


def _close(block: Block, *, returns: bool) -> None:
    """End a block with a return or a yield, after its successors as a branch."""
    end = block.last_op
    assert end is not None
    last: Operation = ReturnOp() if returns else scf.YieldOp()
    last.location = end.location
    if isinstance(end, cf.ConditionalBranchOp):
        branch = scf.IfOp(end.cond, [], _side(end.then_block), _side(end.else_block))
        branch.location = end.location
        Rewriter.insert_op(branch, InsertPoint.before(end))
    Rewriter.replace_op(end, last, [])


def _side(block: Block) -> Region:
    region = block.parent
    assert region is not None
    _close(block, returns=False)
    region.detach_block(block)
    return Region(block)
