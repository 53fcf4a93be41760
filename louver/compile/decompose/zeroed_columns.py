"""Finds the columns of a sparse tile that a dot multiplies with zeros, and remainders that matter for the others alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.integers import equal, is_zero, repeated
from louver.analysis.own_numbers import upper_bound
from louver.analysis.passages import came_from
from louver.compile.rewrite.materialize import dominates
from louver.compile.rewrite.tile_numbers import TileNumbers
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.types import as_tensor, tensor_of
from louver.ir.walk import each_once


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
    match other.owner:
        case tt.LoadOp(mask=SSAValue() as condition, other=filler) if filler is None or is_zero(filler):
            pass
        case SelectOp(cond=condition, rhs=filler) if is_zero(filler):
            pass
        case _:
            return []
    found, pending = list[tuple[SSAValue, int]](), [condition]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, arith.AndIOp):
            pending += owner.operands
        elif isinstance(owner, tt.BroadcastOp) and dominates(owner.result, load):
            found += [(owner.result, across)] if tensor_of(owner.src).get_shape()[1 - across] == 1 else []
    return found


@dataclass(frozen=True, slots=True)
class Below:
    """A condition that elements of a range are below a number: columns that count."""

    range: tt.MakeRangeOp
    size: SSAValue

    @classmethod
    def of(cls, condition: SSAValue) -> Below | None:
        """None for any other condition."""
        compared = repeated(condition).owner
        if not isinstance(compared, CmpiOp) or compared.name_of_predicate[0] != "s":
            return None
        match upper_bound(compared):
            case (one, other, 0) if isinstance(numbers := repeated(one).owner, tt.MakeRangeOp):
                size = repeated(other)
                return cls(numbers, size) if as_tensor(size.type) is None else None
            case _:
                return None

    def is_own(self, op: arith.RemSIOp) -> bool:
        """Whether a remainder is its dividend where the condition holds."""
        return equal(repeated(op.lhs), self.range.result) and equal(repeated(op.rhs), self.size)

    def cuts(self, make: TileNumbers, group: int) -> SSAValue:
        """Whether the condition holds for a part of a group, a power of two that divides the bounds of the range."""
        rest = make.compared(make.masked(self.size, group - 1), "ne", 0)
        ends = (self.range.start, "sgt"), (self.range.end, "slt")
        within = [make.compared(self.size, predicate, end.value.data) for end, predicate in ends]
        return make.both(make.both(rest, within[0]), within[1])


def own_below(columns: Mapping[tt.LoadOp, int]) -> tuple[frozenset[Operation], frozenset[SSAValue]]:
    """Remainders `number % size` of addresses that are `number` in all columns that count, as the others are multiplied with zeros;
    and the conditions of `zeroed_columns` by which these count. columns: the dimension of columns of each load.
    """
    own, others, conditions = set[Operation](), set[Operation](), set[SSAValue]()
    for load, along in columns.items():
        known = [(each, Below.of(each)) for each, _ in zeroed_columns(load, along)]
        for op in _remainders(load.ptr):
            found = [each for each, below in known if below is not None and below.is_own(op)]
            conditions.update(found)
            (own if found else others).add(op)
    return frozenset(own - others), frozenset(conditions)


def _remainders(address: SSAValue) -> set[arith.RemSIOp]:
    """The remainders of which an address is computed."""
    found, pending = set[arith.RemSIOp](), [address]
    for value in each_once(pending):
        if isinstance(value.owner, arith.RemSIOp):
            found.add(value.owner)
        pending += came_from(value) or (() if isinstance(value.owner, Block) else value.owner.operands)
    return found
