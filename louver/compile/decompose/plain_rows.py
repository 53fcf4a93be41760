"""Reads rows that wrap within their tile as plain rows: `start + arange(0, BLOCK) % N`, where the launch checks that N is at least
the tile. The remainder is then the range itself, for any start.
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.affine import launch_size
from louver.analysis.passages import came_from
from louver.compile.condition_attributes import require_whole_rows
from louver.ir.polynomial import Size
from louver.ir.tile import FuncOp, MakeRangeOp, SplatOp
from louver.ir.walk import each_once


def read_plain_rows(function: FuncOp, pointers: Iterable[SSAValue]) -> None:
    """Replace such remainders in place, if any of some pointers is computed from one.

    Rows that begin at 0 stay: they are those of a tensor with fewer rows than the tile.
    """
    found = dict[arith.RemSIOp, tuple[MakeRangeOp, Size]]()
    for op in function.body.walk():
        if not isinstance(op, arith.RemSIOp):
            continue
        tile, size = op.lhs.owner, op.rhs.owner
        if not isinstance(tile, MakeRangeOp) or not isinstance(size, SplatOp) or tile.start.value.data:
            continue
        known = launch_size(size.src, function.argument_names)
        begins = any(isinstance(use.operation, arith.AddiOp) for use in op.result.uses)
        if begins and known is not None and known.constant is None:
            found[op] = tile, known - tile.end.value.data
    if found and not _sources(pointers).isdisjoint(found):
        for op, (tile, beyond) in found.items():
            require_whole_rows(function, beyond, 1)
            Rewriter.replace_op(op, [], [tile.result])


def _sources(values: Iterable[SSAValue]) -> set[Operation]:
    """The operations from which values are computed, also by loops and branches."""
    found, pending = set[Operation](), [*values]
    for value in each_once(pending):
        pending += came_from(value)
        if isinstance(value.owner, Operation) and not came_from(value):
            found.add(value.owner)
            pending += value.owner.operands
    return found
