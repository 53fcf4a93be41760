"""How far apart neighbours of a tile are, where a launch can compute it: the stride of rows, for neighbours along another axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from xdsl.dialects import arith, scf
from xdsl.ir import Block, SSAValue

from louver.analysis.affine import launch_size
from louver.analysis.integers import constant_everywhere, repeated
from louver.analysis.passages import came_from
from louver.analysis.runs import WHOLE, Key, Runs, in_line, inside, power
from louver.ir import tile as tt
from louver.ir.arith import ExtSIOp, ExtUIOp, TruncIOp
from louver.ir.comparisons import SelectOp
from louver.ir.polynomial import Polynomial, Size
from louver.ir.tile.types import as_tensor, element_of
from louver.ir.walk import each_once

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
        by = repeated(by)
        factor = None if as_tensor(by.type) is not None else launch_size(by, self.names)
        step = None if factor is None else self.of(moving, dimension, count)
        return None if factor is None or step is None else step * factor

    def moves(self, load: tt.LoadOp, dimension: int, count: int) -> bool:
        """Whether each aligned block of `count` neighbours has one mask, and begins at a row that is a multiple of their number.

        Numbers that are no multiple of the distance count as places in a row. Whether they are is left to the device.
        """
        apart = self.of(load.ptr, dimension, count)
        if apart is None or self._rows((load.ptr, dimension, count), apart) % count:
            return False
        return load.mask is None or self.runs.same(load.mask, dimension, count)

    def _rows(self, block: Key, apart: Size) -> int:
        """The largest known power of two that divides the distances in the first number of a block: the least one of all summands.

        A number that is loaded or passed for a whole tile may be any distance.
        """
        found, pending = WHOLE, [block]
        for key in each_once(pending):
            value, dimension, count = key
            match owner := value.owner:
                case arith.MuliOp():
                    found = min(found, self._rows_of_product(key, apart))
                case arith.ConstantOp():
                    found = min(found, power(self.distances(value, apart) or 0))
                case arith.AddiOp() | tt.AddPtrOp() | arith.SubiOp():
                    pending += [(each, dimension, count) for each in owner.operands]
                case SelectOp(lhs=left, rhs=right):
                    pending += [(left, dimension, count), (right, dimension, count)]
                case Block() | scf.ForOp() | scf.IfOp() if sources := came_from(value):
                    pending += [(each, dimension, count) for each in sources]
                case Block() if isinstance(loop := owner.parent_op(), scf.ForOp):
                    pending += [(loop.lb, 0, 1), (loop.step, 0, 1)]
                case Block() | tt.LoadOp() if as_tensor(value.type) is None:
                    found = found if isinstance(value.type, tt.PointerType) else 1
                case _ if (source := _source(key)) is not None:
                    pending.append(source)
                case _:
                    pass
        return found

    def _rows_of_product(self, key: Key, apart: Size) -> int:
        """The same for a product of which a factor is the distance, or a multiple of it. Any other one is a place in a row."""
        factors = list(_factors(key))
        found = [
            prod([power(by), *(run.multiple for each in factors if each is not one and (run := self.runs.of(*each)))])
            for one in factors
            if (by := self.distances(one[0], apart)) is not None
        ]
        return min(max(found, default=WHOLE), WHOLE)

    def distances(self, factor: SSAValue, apart: Size) -> int | None:
        """How many distances a factor is: 1 for the distance itself, a quotient of constants; None for any other factor."""
        if (number := constant_everywhere(factor)) is not None:
            by = apart.constant
            return None if not by or number % by else number // by
        size = None if as_tensor(factor.type) is not None else launch_size(factor, self.names)
        return 1 if size == apart else None


def _source(key: Key) -> Key | None:
    """The block in the source of an operation that only rearranges elements or changes their type; None for others."""
    value, dimension, count = key
    match owner := value.owner:
        case ExtSIOp() | ExtUIOp() | TruncIOp():
            return owner.input, dimension, count
        case tt.SplatOp():
            return owner.src, 0, 1
        case tt.ExpandDimsOp() | tt.BroadcastOp() | tt.TransOp():
            inner = inside(owner, dimension)
            return (owner.src, 0, 1) if inner is None else (owner.src, inner, count)
        case tt.ReshapeOp():
            inner = in_line(owner, dimension, count)
            return None if inner is None else (owner.src, inner, count)
        case _:
            return None


def _factors(key: Key) -> Iterator[Key]:
    """The factors of a product of products."""
    value, dimension, count = key
    if isinstance(owner := value.owner, arith.MuliOp):
        for each in owner.operands:
            yield from _factors((each, dimension, count))
    elif (source := _source(key)) is not None:
        yield from _factors(source)
    else:
        yield key
