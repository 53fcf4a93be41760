"""Finds the columns of a sparse tile that a dot multiplies with zeros."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from louver.analysis.integers import is_zero
from louver.ir import tile as tt
from louver.ir.tile.types import tensor_of


def zeroed_columns(load: tt.LoadOp, columns: int) -> list[tuple[SSAValue, int]]:
    """Conditions on columns alone under which the other operand of the only dot of a tile is not zero, each with the dimension of
    columns in it.
    """
    value, along = load.result, columns
    uses = list(value.uses)
    while len(uses) == 1 and isinstance(turn := uses[0].operation, tt.TransOp):
        value, along, uses = turn.result, 1 - along, list(turn.result.uses)
    if len(uses) != 1 or not isinstance(dot := uses[0].operation, tt.DotOp) or uses[0].index != 1 - along:
        return []
    other, across = dot.operands[along], 1 - along
    while isinstance(other.owner, tt.TransOp):
        other, across = other.owner.src, 1 - across
    source = other.owner
    if (
        not isinstance(source, tt.LoadOp)
        or source.mask is None
        or (source.other is not None and not is_zero(source.other))
    ):
        return []
    found, pending = list[tuple[SSAValue, int]](), [source.mask]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, arith.AndIOp):
            pending += owner.operands
        elif isinstance(owner, tt.BroadcastOp) and _comes_before(owner, load):
            found += [(owner.result, across)] if tensor_of(owner.src).get_shape()[1 - across] == 1 else []
    return found


def _comes_before(op: Operation, other: Operation) -> bool:
    """Whether an operation's results are known where another operation, perhaps of an inner region, stands."""
    place: Operation | None = other
    while place is not None and place.parent is not op.parent:
        place = place.parent_op()
    return place is not None and op.is_before_in_block(place)
