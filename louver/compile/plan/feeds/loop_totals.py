"""Finds totals of loops: each step combines a total with what it reduces of a tile, and nothing else reads the total."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import Attribute, Operation

from louver.analysis.passages import end_of
from louver.ir import tile as tt
from louver.ir.tile.staging import in_shared
from louver.ir.tile.types import element_bits

_FLOATS = (arith.AddfOp, arith.MaxnumfOp, arith.MaximumfOp, arith.MinnumfOp, arith.MinimumfOp)
_INTEGERS = (arith.AddiOp, arith.MaxSIOp, arith.MaxUIOp, arith.MinSIOp, arith.MinUIOp)

COMBINES = (*_FLOATS, *_INTEGERS)
"""Operations that combine elements in any order."""


MOST = 32
"""The most parts of totals that a thread carries."""


@dataclass(frozen=True, slots=True)
class LoopTotal:
    """A total of a loop.

    number: its number among the values that the loop carries.
    add: the operation that combines it with the result of a step.
    step: the reduction of a step.
    moves: how the result of the reduction comes to the place of the total.
    """

    number: int
    add: Operation
    step: tt.ReduceOp
    moves: tuple[Operation, ...]

    @classmethod
    def of(cls, loop: scf.ForOp, number: int) -> LoopTotal | None:
        """None if the loop carries something else."""
        block = loop.body.block
        argument, add = block.args[number + 1], end_of(block).operands[number].owner
        if not isinstance(add, COMBINES) or add.parent is not block or argument not in add.operands:
            return None
        if not argument.has_one_use() or not add.results[0].has_one_use():
            return None
        value = add.operands[1] if add.operands[0] is argument else add.operands[0]
        moves: list[Operation] = []
        while isinstance(move := value.owner, tt.TransOp | tt.ExpandDimsOp | tt.ReshapeOp | tt.ConvertLayoutOp):
            if not value.has_one_use() or move.parent is not block or any(map(in_shared, (value, move.operands[0]))):
                return None
            moves.insert(0, move)
            value = move.operands[0]
        found = value.owner
        if not isinstance(found, tt.ReduceOp) or found.parent is not block or not value.has_one_use():
            return None
        total = cls(number, add, found, tuple(moves))
        return total if total._combines_alike() else None

    @classmethod
    def made_by(cls, step: Operation) -> LoopTotal | None:
        """The total that a reduction is for; None if it is for something else."""
        loop = step.parent_op()
        if not isinstance(loop, scf.ForOp):
            return None
        numbers = range(len(loop.iter_args))
        totals = (total for number in numbers if (total := cls.of(loop, number)) is not None)
        return next((total for total in totals if total.step is step), None)

    def _combines_alike(self) -> bool:
        block = self.step.combine.block
        adds, end = block.first_op, block.last_op
        return (
            len(self.step.srcs) == 1
            and type(adds) is type(self.add)
            and adds is not None
            and end is not None
            and set(adds.operands) == set(block.args)
            and list(end.operands) == list(adds.results)
        )


def neutral(add: Operation, element: Attribute) -> float | int:
    """The element that changes no other element by an operation of `COMBINES`."""
    if isinstance(element, AnyFloat):
        if isinstance(add, arith.AddfOp):
            return 0.0
        return float("-inf" if isinstance(add, arith.MaxnumfOp | arith.MaximumfOp) else "inf")
    least = -1 << (element_bits(element) - 1)
    match add:
        case arith.MaxSIOp():
            return least
        case arith.MinSIOp():
            return ~least
        case arith.MinUIOp():
            return -1
        case _:
            return 0
