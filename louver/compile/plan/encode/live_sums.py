"""Counts the sums of dots that are live at the same time."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from louver.analysis.effects import is_elementwise
from louver.compile.plan.encode.unit import held_sums
from louver.ir.tile import DotOp, FuncOp
from louver.ir.tile.types import as_tensor, tensor_of
from louver.ir.walk import each_once
from louver.isa.instruction import REGISTER_BITS


def most_sums(function: FuncOp) -> int:
    """The largest number of sums that are live at a dot. Sums of loops that follow each other use the same registers.

    A loop that adds to the sums of an earlier loop continues their live range. Narrowing, a store or a reduction ends
    it.
    """
    operations = list(function.body.walk())
    numbers = {op: number for number, op in enumerate(operations)}
    ends = {op: numbers[op] + sum(1 for _ in op.walk()) - 1 for op in operations}
    dots = [op for op in operations if isinstance(op, DotOp)]
    lives = [_Life(op, numbers, ends) for op in dots]
    found = 0
    for dot in dots:
        apart = list[_Life]()
        for life in lives:
            # A dot that adds to the sums of another dot uses the same registers.
            if life.first <= numbers[dot] <= life.last and not any(life.dot.d in other.names for other in apart):
                apart = [other for other in apart if other.dot.d not in life.names] + [life]
        found = max(found, sum(life.sums for life in apart))
    return found


class _Life:
    """The live range of a dot's sums: their values, and the first and last operation that need their registers."""

    def __init__(self, dot: DotOp, numbers: Mapping[Operation, int], ends: Mapping[Operation, int]) -> None:
        self.dot = dot
        self.first = self.last = numbers[dot]
        self.names: set[SSAValue] = set()
        carried, pending = False, [SSAValue.get(dot.d)]
        for name in each_once(pending):
            self.names.add(name)
            for use in name.uses:
                op = use.operation
                self.last = max(self.last, numbers[op])
                around = op.parent_op() if isinstance(op, scf.YieldOp) else op
                if isinstance(around, scf.ForOp) and (around is not op or use.index >= 3):
                    index = use.index - 3 if around is op else use.index
                    carried |= around is not op
                    self.first, self.last = min(self.first, numbers[around]), max(self.last, ends[around])
                    pending += [around.body.block.args[index + 1], around.results[index]]
                elif isinstance(op, scf.YieldOp) and around is not None:
                    pending.append(around.results[use.index])
                elif (isinstance(op, DotOp) and name is op.c) or is_elementwise(op):
                    pending += [result for result in op.results if _is_as_wide(result, dot)]
        self.sums = held_sums(dot) if carried else prod(tensor_of(dot.d).get_shape())


def _is_as_wide(value: SSAValue, dot: DotOp) -> bool:
    """Whether a tile takes as many registers as a dot's sums."""
    tile = as_tensor(value.type)
    bits = getattr(tile and tile.element_type, "bitwidth", 0)
    return tile is not None and tile.get_shape() == tensor_of(dot.d).get_shape() and bits == REGISTER_BITS["b32"]
