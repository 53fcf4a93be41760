"""hoist-invariants: moves computations that do not change out of a loop, if their results need few registers.

split-addresses computes the pointers and masks of a load in the loop. The part for rows has one element for each row,
and is the same in each step of K. Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.effects import has_no_effect, takes_any
from louver.ir.tile import ConvertLayoutOp, DotOp
from louver.ir.tile.types import as_tensor, register_encoding

MOST = 8
"""The most elements of a tile that a thread may hold during a loop."""


def hoist_invariants(module: ModuleOp) -> None:
    """Hoists in place. Inner loops come first, so that a value that several loops do not change leaves all of them."""
    for loop in reversed([op for op in module.walk() if isinstance(op, scf.ForOp)]):
        inside = set(loop.body.walk())
        for op in list(loop.body.block.ops):
            if not any(_is_inside(operand, loop, inside) for operand in op.operands) and _may_leave(op):
                op.detach()
                Rewriter.insert_op(op, InsertPoint.before(loop))
                inside.remove(op)


def _is_inside(value: SSAValue, loop: scf.ForOp, inside: set[Operation]) -> bool:
    return value.owner is loop.body.block or value.owner in inside


def _may_leave(op: Operation) -> bool:
    """Whether an operation may run even if the loop does not, and its results need few registers."""
    stays = isinstance(op, ConvertLayoutOp | DotOp) or op.regions or not op.results or not has_no_effect(op)
    return not stays and takes_any(op) and all(map(_is_small, op.results))


def _is_small(value: SSAValue) -> bool:
    """Whether a value needs few registers. Tiles of conditions stay, because a thread has only seven predicates."""
    tensor = as_tensor(value.type)
    if tensor is None:
        return True
    encoding = register_encoding(tensor)
    assert encoding is not None
    return tensor.element_type != IntegerType(1) and len(encoding.layout(tensor.get_shape()).registers) <= MOST
