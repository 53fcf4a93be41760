"""hoist-invariants: computations of a loop that do not change move before it, if they fit few registers.

split-addresses computes pointers and masks of a load in the loop. A row's part of them, one element for each row, is the same in each step
of K. Valid tile IR with encodings in (after assign-encodings), valid tile IR out.
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
"""Elements of a thread that may wait outside of a loop, of a tile."""


def hoist_invariants(module: ModuleOp) -> None:
    """In place. Inner loops first, so that what is the same for several loops leaves all of them."""
    for loop in reversed([op for op in module.walk() if isinstance(op, scf.ForOp)]):
        inside = set(loop.body.walk())
        for op in list(loop.body.block.ops):
            if _may_leave(op) and not any(_is_inside(operand, loop, inside) for operand in op.operands):
                op.detach()
                Rewriter.insert_op(op, InsertPoint.before(loop))
                inside.remove(op)


def _is_inside(value: SSAValue, loop: scf.ForOp, inside: set[Operation]) -> bool:
    return value.owner is loop.body.block or value.owner in inside


def _may_leave(op: Operation) -> bool:
    """Whether an operation may be done where the loop does not run, and its results are few."""
    stays = isinstance(op, ConvertLayoutOp | DotOp) or op.regions or not op.results or not has_no_effect(op)
    return not stays and takes_any(op) and all(map(_is_small, op.results))


def _is_small(value: SSAValue) -> bool:
    """Whether few registers hold a value. Conditions stay: a thread has seven predicates."""
    tensor = as_tensor(value.type)
    if tensor is None:
        return True
    encoding = register_encoding(tensor)
    assert encoding is not None
    return tensor.element_type != IntegerType(1) and len(encoding.layout(tensor.get_shape()).registers) <= MOST
