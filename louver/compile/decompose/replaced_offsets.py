"""Offsets that a kernel replaces by a number where a tile leaves its tensor: `tl.load(w + tl.where(inside, offsets, 0))`.

Replaced offsets are no neighbours. So a tile may be replaced where its counterpart is zero, and in whole groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from louver.analysis.alignment import Needs
from louver.analysis.own_numbers import upper_bound
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.types import tensor_of


def whole_where_replaced(load: tt.LoadOp, multiples: Mapping[SSAValue, int], wholes: Mapping[int, int]) -> Needs:
    """The arguments that must be multiples, so that the offsets of a load without a mask are replaced in whole parts.

    multiples: numbers that are known to divide arguments. wholes: the elements of a part along each dimension.
    """
    if load.mask is not None:
        return frozenset()
    found = ((_size(each), wholes[along]) for each, along in _comparisons(load.ptr))
    return frozenset((size, of) for size, of in found if size is not None and multiples.get(size, of) % of)


def _comparisons(pointers: SSAValue) -> Iterator[tuple[CmpiOp, int]]:
    """The comparisons along one dimension that are true where offsets are not replaced, each with its dimension."""
    pending = [pointers]
    while pending:
        value = pending.pop()
        match value.owner:
            case tt.AddPtrOp() | arith.AddiOp() | arith.AndIOp() | ExtSIOp():
                pending += value.owner.operands
            case SelectOp(cond=cond, rhs=SSAValue(owner=arith.ConstantOp() | tt.SplatOp())):
                pending.append(cond)
            case tt.BroadcastOp(src=SSAValue(owner=CmpiOp() as compared) as narrow):
                along = [axis for axis, size in enumerate(tensor_of(narrow).get_shape()) if size > 1]
                yield from ((compared, axis) for axis in along if len(along) == 1)
            case _:
                pass


def _size(compared: CmpiOp) -> SSAValue | None:
    """The number that all elements of an index are below, or None."""
    bound = upper_bound(compared)
    value = None if bound is None or bound[2] else bound[1]
    while value is not None and isinstance(value.owner, tt.SplatOp | tt.ExpandDimsOp | ExtSIOp):
        value = value.owner.operands[0]
    return value
