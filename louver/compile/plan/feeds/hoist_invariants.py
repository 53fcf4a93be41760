"""hoist-invariants: moves computations that do not change out of a loop, if their results need few registers.

split-addresses computes the pointers and masks of a load in the loop. The part for rows has one element for each row,
and is the same in each step of K. Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from math import prod

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import has_no_effect, takes_any
from louver.compile.rewrite.insert import move
from louver.ir.tile import ConvertLayoutOp, DotOp, ExpandDimsOp
from louver.ir.tile.types import as_tensor, register_encoding

MOST = 8
"""The most elements of a tile that a thread may hold during a loop. Twice as many, if the loop has dots and carries few."""

FEW = 64
"""Registers of a thread for tiles that a loop carries, from which it holds fewer others."""


def hoist_invariants(module: ModuleOp) -> None:
    """Hoists in place. Inner loops come first, so that a value that several loops do not change leaves all of them."""
    for loop in reversed([op for op in module.walk() if isinstance(op, scf.ForOp)]):
        inside = set(loop.body.walk())
        has_room = any(isinstance(op, DotOp) for op in inside) and sum(map(_elements, loop.iter_args)) <= FEW
        most = 2 * MOST if has_room else MOST
        for op in list(loop.body.block.ops):
            if not any(_is_inside(operand, loop, inside) for operand in op.operands) and _may_leave(op, most):
                move(loop, op)
                inside.remove(op)


def _is_inside(value: SSAValue, loop: scf.ForOp, inside: set[Operation]) -> bool:
    return value.owner is loop.body.block or value.owner in inside


def _may_leave(op: Operation, most: int) -> bool:
    """Whether an operation may run even if the loop does not, and its results need few registers."""
    stays = isinstance(op, ConvertLayoutOp | DotOp) or op.regions or not op.results or not has_no_effect(op)
    return not stays and takes_any(op) and all(_is_small(each, most) for each in op.results)


def _is_small(value: SSAValue, most: int) -> bool:
    """Whether a value needs few registers. A loop keeps conditions as bits (`lower/tiles/bits.py`). To test a bit costs as
    much as to compare, so only what takes more leaves the loop.
    """
    tensor = as_tensor(value.type)
    if tensor is not None and tensor.element_type == IntegerType(1):
        return prod(tensor.get_shape()) == max(tensor.get_shape()) and _is_joined(value)
    return _elements(value) <= most


def _elements(value: SSAValue) -> int:
    """The elements of a tile that a thread holds. None of a scalar."""
    tensor = as_tensor(value.type)
    encoding = None if tensor is None else register_encoding(tensor)
    return 0 if tensor is None or encoding is None else len(encoding.layout(tensor.get_shape()).registers)


def _is_joined(value: SSAValue) -> bool:
    """Whether a condition joins others, or is only joined with others."""
    if isinstance(value.owner, arith.AndIOp | arith.OrIOp):
        return True
    users = [use.operation for use in value.uses]
    return all(
        isinstance(user, arith.AndIOp | arith.OrIOp) or (isinstance(user, ExpandDimsOp) and _is_joined(user.result))
        for user in users
    )
