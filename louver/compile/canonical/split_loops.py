"""split-loops: splits a loop where a comparison of its number chooses a sparse tensor, so that each part reads one of them.

`w = where(step < steps, w0, w1)` in a loop over steps makes two loops, one behind the other: up to `steps`, and from there on.
All choices by that comparison are decided in both, such as those of strides and of the first column. A comparison with the
loop's own bound is decided without a split: a part of K that the call does not have makes no loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.integers import constant_integer, equal, least_of
from louver.compile.canonical.branch_on_tensors import chooses, decide
from louver.compile.canonical.propagate_sparsity import sparse_arguments
from louver.compile.rewrite.insert import insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import FuncOp

_BELOW = {("slt", 0): 0, ("sge", 0): 1, ("sgt", 1): 0, ("sle", 1): 1}
"""Comparisons that change once as a number rises, by predicate and place of the number: the arm that is taken below the other operand."""


def split_loops(module: ModuleOp) -> None:
    """Rewrite in place. Only loops by constant steps are split."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        arguments = sparse_arguments(function)
        pending = [op for op in function.body.walk() if isinstance(op, scf.ForOp)] if arguments else []
        split = False
        while pending:
            loop = pending.pop()
            cut = next(_cuts(loop, arguments), None)
            if cut is not None:
                pending += cut.apply(loop)
                split = True
        if split:
            remove_dead(function)


def _cuts(loop: scf.ForOp, arguments: set[SSAValue]) -> Iterator[_Cut]:
    """Comparisons of the loop's number that choose sparse tensors, the outermost of several choices first."""
    number, step = loop.body.block.args[0], constant_integer(loop.step)
    for op in reversed(list(loop.body.block.ops)) if step and step > 0 else ():
        test = op.operands[0].owner if chooses(op, arguments) else None
        for place in (0, 1) if isinstance(test, CmpiOp) else ():
            assert isinstance(test, CmpiOp)
            below, bound = _BELOW.get((test.name_of_predicate, place)), test.operands[1 - place]
            if test.operands[place] is number and below is not None and not loop.body.block.is_ancestor(bound.owner):
                yield _Cut(test.result, bound, below)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A condition that changes at a number. below: the arm of a choice that is taken below it: 0 where the condition holds."""

    condition: SSAValue
    bound: SSAValue
    below: int

    def apply(self, loop: scf.ForOp) -> list[scf.ForOp]:
        """Decide the condition in a loop, or in two that replace it. Returns these."""
        if any(equal(self.bound, each) for each in least_of(loop.ub)):
            decide(loop.body, self.condition, self.below)
            return [loop]
        if any(equal(self.bound, each) for each in _greatest_of(loop.lb)):
            decide(loop.body, self.condition, 1 - self.below)
            return [loop]
        known = dict[SSAValue, SSAValue]()
        end = insert_before(loop, arith.MinSIOp(loop.ub, self.bound))
        first = loop.clone(known)
        first.operands[1] = end
        Rewriter.insert_op(first, InsertPoint.before(loop))
        loop.operands = [self._begin(loop), *loop.operands[1:3], *first.results]
        decide(first.body, known[self.condition], self.below)
        decide(loop.body, self.condition, 1 - self.below)
        return [first, loop]

    def _begin(self, loop: scf.ForOp) -> SSAValue:
        """The first number of the loop that is not below the bound, or the loop's first one."""
        step = constant_integer(loop.step)
        assert step is not None
        if step == 1:
            return insert_before(loop, arith.MaxSIOp(loop.lb, self.bound))
        one, zero = (integer(loop, each, loop.lb.type) for each in (step - 1, 0))
        most = insert_before(loop, arith.MaxSIOp(insert_before(loop, arith.SubiOp(self.bound, loop.lb)), zero))
        steps = insert_before(loop, arith.DivSIOp(insert_before(loop, arith.AddiOp(most, one)), loop.step))
        return insert_before(loop, arith.AddiOp(loop.lb, insert_before(loop, arith.MuliOp(steps, loop.step))))


def _greatest_of(value: SSAValue) -> list[SSAValue]:
    """The numbers whose maximum a number is."""
    op = value.owner
    return [*_greatest_of(op.lhs), *_greatest_of(op.rhs)] if isinstance(op, arith.MaxSIOp) else [value]
