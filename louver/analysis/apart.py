"""How far apart neighbours of a tile are, where a launch can compute it: the stride of rows, for neighbours along another axis."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects import arith, scf
from xdsl.ir import Block, SSAValue

from louver.analysis.launch_size import launch_size
from louver.analysis.passages import came_from
from louver.analysis.runs import Runs, in_line, inside
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, ExtUIOp, TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import Polynomial, Size
from louver.ir.tile.types import as_tensor, element_of

_SAME = Polynomial.number(0)


class Apart:
    """Finds distances by induction over a function's loops. names: of the arguments that a launch knows.

    Sums and products do not wrap: a launch checks that 32 bits hold the offsets of a tensor.
    """

    def __init__(self, runs: Runs, names: Mapping[SSAValue, str]) -> None:
        self.runs, self.names = runs, names
        self._known: dict[tuple[SSAValue, int, int], Size | None] = {}

    def of(self, value: SSAValue, dimension: int, count: int) -> Size | None:
        """The distance, in elements, in each aligned block of `count` neighbours along a dimension; None if it is not known."""
        if as_tensor(value.type) is None:
            return _SAME
        key = (value, dimension, count)
        if key not in self._known:
            known = dict(self._known)
            if isinstance(value.owner, Block) and (sources := came_from(value)):
                # Until an iteration of a loop is known, it keeps the distance. Each cycle has such a value.
                self._known[key] = self.of(sources[0], dimension, count)
            found = self._found(value, dimension, count)
            if found is None:
                # What followed from an assumption that does not hold.
                self._known = known
            self._known[key] = found
        return self._known[key]

    def _found(self, value: SSAValue, dimension: int, count: int) -> Size | None:
        run = None if isinstance(element_of(value.type), tt.PointerType) else self.runs.of(value, dimension, count)
        if run is not None:
            return Polynomial.number(run.step)
        match owner := value.owner:
            case Block() | scf.ForOp() | scf.IfOp():
                sources = [self.of(each, dimension, count) for each in came_from(value)]
                return sources[0] if sources and all(each == sources[0] for each in sources) else None
            case tt.SplatOp():
                return _SAME
            case tt.ExpandDimsOp() | tt.BroadcastOp() | tt.TransOp():
                inner = inside(owner, dimension)
                return _SAME if inner is None else self.of(owner.src, inner, count)
            case tt.ReshapeOp():
                inner = in_line(owner, dimension, count)
                return None if inner is None else self.of(owner.src, inner, count)
            case ExtSIOp() | ExtUIOp() | TruncIOp():
                return self.of(owner.input, dimension, count)
            case arith.AddiOp() | tt.AddPtrOp() | arith.SubiOp():
                one, other = (self.of(each, dimension, count) for each in owner.operands)
                if one is None or other is None:
                    return None
                return one - other if isinstance(owner, arith.SubiOp) else one + other
            case arith.MuliOp(lhs=left, rhs=right):
                return self._product(left, right, dimension, count) or self._product(right, left, dimension, count)
            case SelectOp(cond=condition, lhs=left, rhs=right):
                one, other = (self.of(each, dimension, count) for each in (left, right))
                return one if one == other and self.runs.same(condition, dimension, count) else None
            case _:
                return None

    def _product(self, moving: SSAValue, by: SSAValue, dimension: int, count: int) -> Size | None:
        """The distance in the product with a number that all elements share."""
        while isinstance(owner := by.owner, tt.SplatOp | tt.BroadcastOp | tt.ExpandDimsOp | ExtSIOp):
            by = owner.operands[0]
        factor = None if as_tensor(by.type) is not None else launch_size(by, self.names)
        step = None if factor is None else self.of(moving, dimension, count)
        return None if factor is None or step is None else step * factor
