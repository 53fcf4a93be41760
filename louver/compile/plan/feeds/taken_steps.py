"""Finds the branch in which a loop reads what a ring holds. Steps that do not take it need no copies, waits or slots."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import i32
from xdsl.ir import Block, Operation, SSAValue

from louver.compile.plan.feeds.copied_loads import known_ahead
from louver.compile.plan.feeds.steps_ahead import Sources, made_again
from louver.compile.rewrite.insert import insert_before, integer, move
from louver.ir.arith import ExtUIOp
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import ConvertLayoutOp, TransOp


@dataclass(frozen=True, slots=True)
class TakenSteps:
    """The steps in which a loop takes a branch.

    branch: an operation of the loop's body.
    condition: that of the branch, in the user's kernel.
    block: the region that reads the tiles.
    reads: operations before the branch that read or turn them for this region only, in order.
    """

    branch: scf.IfOp
    condition: SSAValue
    block: Block
    reads: Sequence[Operation]

    @classmethod
    def of(cls, loop: scf.ForOp, tiles: Sequence[SSAValue], apart: Container[SSAValue]) -> TakenSteps | None:
        """The steps in which a loop reads tiles in shared memory, if one region reads them all, and it is known ahead which steps
        take it. Else None.

        apart: arrays that do not overlap any other array.
        """
        users = {use.operation for tile in tiles for use in tile.uses}
        reads = [op for op in loop.body.block.ops if op in users and isinstance(op, ConvertLayoutOp | TransOp)]
        users = users.difference(reads).union(use.operation for op in reads for use in op.results[0].uses)
        blocks = {_region(op, loop) for op in users}
        block = blocks.pop() if len(blocks) == 1 else None
        if block is None or not isinstance(branch := block.parent_op(), scf.IfOp):
            return None
        # Threads synchronize before the first read. If each read is in a further branch, some steps have none.
        if not any(op in reads or op.parent is block for op in users.union(reads) if not isinstance(op, TransOp)):
            return None
        ahead = known_ahead(loop, [branch.cond], apart, repeated=True)
        return cls(branch, branch.cond, block, reads) if ahead else None

    @property
    def holds(self) -> bool:
        """The condition in these steps."""
        return self.block is self.branch.true_region.block

    def decided(
        self,
        before: Operation,
        loop: scf.ForOp,
        made: Sequence[Operation],
        known: Mapping[SSAValue, SSAValue],
        goes_on: SSAValue,
    ) -> tuple[dict[SSAValue, SSAValue], SSAValue]:
        """Compute before an operation whether a step exists and is taken.

        made: the operations that compute what copies need. known: maps values of the loop's body to values in that step. goes_on:
        whether it exists. Returns `known` with the results.
        """
        deciding = Sources(loop, [self.condition], repeated=True).made
        here = made_again(before, [op for op in made if op in deciding], known, goes_on)
        found = here.get(self.condition, self.condition)
        found = found if self.holds else insert_before(before, arith.XOrIOp(found, integer(before, 1, found.type)))
        return here, insert_before(before, arith.AndIOp(goes_on, found))

    def number(self, before: Operation, goes: SSAValue) -> SSAValue:
        """1 for a step that is taken, else 0."""
        return insert_before(before, ExtUIOp(goes, i32))

    def marked(self, before: Operation, marks: SSAValue, goes: SSAValue) -> SSAValue:
        """The marks with that of the next step. The mark of the last step is bit 0, and that of the step before it bit 1."""
        moved = insert_before(before, arith.AddiOp(marks, marks))
        return insert_before(before, arith.OrIOp(moved, self.number(before, goes)))

    def decide(self, before: Operation, marks: SSAValue, ahead: int) -> SSAValue:
        """Take the branch by the marks. Returns whether this step is taken.

        ahead: the number of steps from this one on that are marked.
        """
        mark = insert_before(before, arith.AndIOp(marks, integer(before, 1 << (ahead - 1))))
        found = insert_before(before, CmpiOp(mark, integer(before, 0), "ne"))
        taken = found if self.holds else insert_before(before, CmpiOp(mark, integer(before, 0), "eq"))
        self.branch.operands[0] = taken
        return found

    def enter(self) -> Operation:
        """Move the reads to the begin of the region. Returns its first operation."""
        for op in reversed(self.reads):
            assert self.block.first_op is not None
            move(self.block.first_op, op)
        assert self.block.first_op is not None
        return self.block.first_op


def _region(op: Operation, loop: scf.ForOp) -> Block | None:
    """The region of a branch in a loop's body that holds an operation; None if the body itself holds it."""
    block = op.parent
    while block is not None and (around := block.parent_op()) is not None and around is not loop:
        if around.parent is loop.body.block:
            return block
        block = around.parent
    return None
