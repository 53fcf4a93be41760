"""join-tails: joins a loop over the whole steps of K and a last step after it to one loop over all of K.

A descriptor reads zeros beyond K, so a step beyond K adds zero. The pass proves four facts about the step after the
loop:

- It begins where the loop ends.
- It reads the same tensors.
- It is added to the sum of the loop.
- It runs if a part of K is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.transforms.dead_code_elimination import would_be_trivially_dead

from louver.analysis.integers import constant_integer, position
from louver.analysis.passages import end_of
from louver.analysis.residues import ResidueReader, Residues
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.operand_chain import OperandChain, operand_chain
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DotOp, FuncOp
from louver.ir.tile.types import tensor_of


def join_tails(module: ModuleOp) -> None:
    """Rewrite in place. Loops without such a step after them do not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp)]:
            tail = _tail(loop)
            if tail is not None and _join(loop, tail):
                remove_dead(function)


class _Step(NamedTuple):
    """One dot that adds to a sum."""

    dot: DotOp
    left: OperandChain
    right: OperandChain

    @property
    def columns(self) -> int:
        """Columns of K in the step."""
        return tensor_of(self.dot.a).get_shape()[1]


class _Tail(NamedTuple):
    """The steps after a loop, one for each sum that is used.

    branch: the branch that contains them; None without one.
    steps: the steps in the loop.
    last: the steps after the loop.
    sums: the results of the loop.
    ends: the sums after the last steps.
    """

    branch: scf.IfOp | None
    steps: Sequence[_Step]
    last: Sequence[_Step]
    sums: Sequence[SSAValue]
    ends: Sequence[SSAValue]


def _tail(loop: scf.ForOp) -> _Tail | None:
    """The last steps after a loop, if each used result is a sum with one more step; else None."""
    end = end_of(loop.body.block)
    steps: list[_Step] = []
    last: list[_Step] = []
    ends: list[SSAValue] = []
    sums = [result for result in loop.results if result.first_use is not None]
    branches: set[scf.IfOp | None] = set()
    for result in sums:
        place = position(result, loop.results)
        inner = _step_of(loop.body.block.args[place + 1], end.operands[place])
        outer = _last_step(result)
        if inner is None or outer is None or not _alike(inner, outer):
            return None
        owner = outer.dot.parent_op()
        branch = owner if isinstance(owner, scf.IfOp) else None
        after = outer.dot.d if branch is None else _chosen(branch, outer.dot.d, result)
        if after is None or (branch is None and outer.dot.parent is not loop.parent):
            return None
        if {use.operation for use in result.uses} - _uses(outer, branch):
            return None
        branches.add(branch)
        steps.append(inner)
        last.append(outer)
        ends.append(after)
    if len(branches) != 1:
        return None
    branch = branches.pop()
    if branch is not None and (
        branch.parent is not loop.parent or set(branch.results) != set(ends) or not _reads(branch)
    ):
        return None
    return _Tail(branch, steps, last, sums, ends)


def _step_of(partial: SSAValue, total: SSAValue) -> _Step | None:
    """The step from one sum to the next; None if it is not a single dot that adds to the sum."""
    dot = total.owner
    if not isinstance(dot, DotOp) or dot.c is not partial:
        return None
    left, right = operand_chain(dot.a, dot, -1), operand_chain(dot.b, dot, -2)
    return None if left is None or right is None else _Step(dot, left, right)


def _last_step(result: SSAValue) -> _Step | None:
    """The step after a loop that adds to a sum of the loop."""
    dot = next((use.operation for use in result.uses if isinstance(use.operation, DotOp)), None)
    return None if dot is None else _step_of(result, dot.d)


def _alike(one: _Step, other: _Step) -> bool:
    """Whether two steps are equal except for the place along K."""
    if one.dot.properties != other.dot.properties:
        return False
    return other.left.reads_like(one.left) and other.right.reads_like(one.right)


def _chosen(branch: scf.IfOp, total: SSAValue, before: SSAValue) -> SSAValue | None:
    """The result of the branch that is the sum with the last step, or without it."""
    ends = [region.block.last_op for region in branch.regions if region.blocks]
    for place, result in enumerate(branch.results):
        values = [end.operands[place] for end in ends if end is not None]
        if len(values) == 2 and total in values and before in values:
            return result
    return None


def _uses(step: _Step, branch: scf.IfOp | None) -> set[Operation]:
    """The allowed users of a loop's sum: the step after the loop, and the end of a region that does not change the sum."""
    ends = [] if branch is None else [region.block.last_op for region in branch.regions if region.blocks]
    return {step.dot, *(end for end in ends if end is not None and end.parent is not step.dot.parent)}


def _reads(branch: scf.IfOp) -> bool:
    """Whether a branch has no effects."""
    return all(would_be_trivially_dead(op) or isinstance(op, scf.YieldOp) for op in branch.walk() if op is not branch)


def _join(loop: scf.ForOp, tail: _Tail) -> bool:
    """Extend the loop to the end of K, if the result is the same. Returns whether it is."""
    step = tail.steps[0].columns
    places = [chain.position for each in tail.last for chain in (each.left, each.right)]
    if constant_integer(loop.lb) != 0 or any(isinstance(place, int) for place in places):
        return False
    if any(chain.position is not _moved(loop, step, chain) for each in tail.steps for chain in (each.left, each.right)):
        return False
    condition = [] if tail.branch is None else [tail.branch.cond]
    starts = [place for place in places if not isinstance(place, int)]
    reader = ResidueReader.of([loop.ub, *starts, *condition], step)
    if reader is None:
        return False
    gone = _gone_through(loop, step, reader)
    if gone is None or any(reader.integer(start) != gone for start in starts):
        return False
    taken = _taken(tail, reader)
    if taken is None or not gone.is_at_least(0) or not _covers(gone, taken, reader):
        return False
    if reader.size is not None and not _is_argument(reader.size, loop):
        return False
    _extend(loop, step, reader, gone + Residues.number(step, step) if taken.all() else gone)
    for result, after in zip(tail.sums, tail.ends, strict=True):
        after.replace_all_uses_with(result)
    if tail.branch is not None:
        Rewriter.erase_op(tail.branch)
    return True


def _is_argument(size: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a size is an argument of the kernel, of the type of the loop's number."""
    owner = size.owner
    return isinstance(owner, Block) and isinstance(owner.parent_op(), FuncOp) and size.type == loop.lb.type


def _moved(loop: scf.ForOp, step: int, chain: OperandChain) -> object:
    """The position of a chain along K, if it counts elements from 0 on in whole steps; else None."""
    number, place = loop.body.block.args[0], chain.position
    by = constant_integer(loop.step)
    if place is number and by == step:
        return place
    op = place.owner if isinstance(place, SSAValue) else None
    if by == 1 and isinstance(op, arith.MuliOp) and number in op.operands:
        factor = op.rhs if op.lhs is number else op.lhs
        return place if constant_integer(factor) == step else None
    return None


def _gone_through(loop: scf.ForOp, step: int, reader: ResidueReader) -> Residues | None:
    """The number of elements of K in all iterations of the loop."""
    end = reader.integer(loop.ub)
    if end is None or constant_integer(loop.step) == 1:
        return None if end is None else end.times(step)
    steps = end.divided(step, up=True)
    return None if steps is None else steps.times(step)


def _taken(tail: _Tail, reader: ResidueReader) -> NDArray[np.bool_] | None:
    """The remainders of K for which the step after the loop runs."""
    if tail.branch is None:
        return np.ones(reader.step, np.bool_)
    truth = reader.truth(tail.branch.cond)
    holds = tail.last[0].dot.parent is tail.branch.true_region.block
    return truth if truth is None or holds else ~truth


def _covers(gone: Residues, taken: NDArray[np.bool_], reader: ResidueReader) -> bool:
    """Whether all of K is covered: with the last step if it runs, and without it otherwise."""
    if reader.size is None:
        return bool(taken.all() or not taken.any())
    left = gone - Residues.size(reader.step)
    return left.is_at_least(-reader.step, taken) and left.is_at_least(0, ~taken)


def _extend(loop: scf.ForOp, step: int, reader: ResidueReader, gone: Residues) -> None:
    """Extend the loop to the end of K. gone: elements of the old loop, for a constant K."""
    counts = constant_integer(loop.step) == 1
    if reader.size is None:
        elements = int(gone.start[0])
        loop.operands[1] = integer(loop, elements // step if counts else elements)
    elif counts:
        above = insert_before(loop, arith.AddiOp(reader.size, integer(loop, step - 1)))
        loop.operands[1] = insert_before(loop, arith.DivSIOp(above, integer(loop, step)))
    else:
        loop.operands[1] = reader.size
