"""The mask of an access, from a few small tiles: a condition of its rows, and one of its columns.

    (a & c[None, :]) & b[:, None]    ⟶    (a & b)[:, None] & c[None, :]

Conditions of one shape are joined before they are repeated. Those that change in the loop around the access stay apart, so
that the others may leave it (hoist-invariants).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import varies
from louver.compile.rewrite.insert import insert_before
from louver.ir import tile as tt
from louver.ir.tile.types import as_tensor, tensor_of


def split_mask(op: tt.LoadOp | tt.StoreOp | tt.AtomicRMWOp) -> None:
    """Replace the mask of a tile, if several of its conditions have one shape."""
    mask, loop = op.mask, op.parent_op()
    if mask is None or as_tensor(mask.type) is None:
        return
    groups: dict[tuple[tuple[int, ...], bool], list[SSAValue]] = {}
    for each in _conditions(op, mask):
        changes = isinstance(loop, scf.ForOp) and varies(each, loop.body.block)
        groups.setdefault((tensor_of(each).get_shape(), changes), []).append(each)
    shape = tensor_of(mask).get_shape()
    if all(len(group) == 1 or narrow == shape for (narrow, _), group in groups.items()):
        return
    op.operands[op.operands.index(mask)] = _joined(
        op, [_repeated(op, _joined(op, each), shape) for each in groups.values()]
    )


def _joined(op: Operation, conditions: Sequence[SSAValue]) -> SSAValue:
    """The conjunction of conditions of one shape."""
    return reduce(lambda one, other: insert_before(op, arith.AndIOp(one, other)), conditions)


def _repeated(op: Operation, condition: SSAValue, shape: Sequence[int]) -> SSAValue:
    same = tensor_of(condition).get_shape() == tuple(shape)
    return condition if same else insert_before(op, tt.BroadcastOp(condition, shape))


def _conditions(op: Operation, mask: SSAValue) -> list[SSAValue]:
    """The conditions whose conjunction a mask is, each as the small tile that is repeated."""
    match mask.owner:
        case arith.AndIOp(lhs=lhs, rhs=rhs):
            return [*_conditions(op, lhs), *_conditions(op, rhs)]
        case tt.BroadcastOp(src=source):
            return _conditions(op, source)
        case tt.ExpandDimsOp(src=source, axis=axis) if isinstance(source.owner, arith.AndIOp):
            return [insert_before(op, tt.ExpandDimsOp(each, axis.value.data)) for each in _conditions(op, source)]
        case _:
            return [mask]
