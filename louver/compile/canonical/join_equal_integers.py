"""join-equal-integers: joins integers that are always equal, so that each is computed once.

Two integers are equal if they are the same polynomial, or the same operation on equal operands. The numbers of loops
are included: a second counter of a loop (`tile += PROGRAMS`) may equal the number of the loop.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerType, ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from louver.analysis.atoms import Iteration
from louver.analysis.effects import has_no_effect
from louver.analysis.integers import constant_integer
from louver.analysis.passages import end_of
from louver.compile.rewrite.materialize import dominates
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.polynomial import Polynomial
from louver.ir.tile import FuncOp


def join_equal_integers(module: ModuleOp) -> None:
    """Rewrite in place. The first of equal integers replaces the others."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        numbers = _Numbers()
        joined = [numbers.meet(each) for op in function.body.walk() for each in _integers(op)]
        if any(joined):
            remove_dead(function)


def _integers(op: Operation) -> list[SSAValue]:
    """The integer results of an operation without effects, and the integer arguments of its blocks."""
    found: list[SSAValue] = [each for region in op.regions for block in region.blocks for each in block.args]
    if has_no_effect(op) and not op.regions:
        found += op.results
    return [each for each in found if isinstance(each.type, IntegerType) and constant_integer(each) is None]


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The integers found so far.

    met: integers by a key that is the same for equal ones.
    known: integers as polynomials of other integers. A polynomial has one type, in which sums and products may
    overflow. An extension of an integer is therefore a separate integer.
    """

    met: dict[Hashable, list[SSAValue]] = field(default_factory=dict[Hashable, list[SSAValue]])
    known: dict[SSAValue, Polynomial] = field(default_factory=dict[SSAValue, Polynomial])

    def meet(self, value: SSAValue) -> bool:
        """Replace an integer by an equal one found before. Returns whether there was one."""
        others = self.met.setdefault((value.type, self._key(value)), [])
        op = value.owner
        first = next((each for each in others if isinstance(op, Operation) and dominates(each, op)), None)
        if first is None:
            others.append(value)
            return False
        value.replace_all_uses_with(first)
        return True

    def _key(self, value: SSAValue) -> Hashable:
        found, op = self._polynomial(value), value.owner
        if isinstance(op, Block) or found != Polynomial.atom(value):
            return found
        operands = (self._polynomial(each) if isinstance(each.type, IntegerType) else each for each in op.operands)
        return (op.name, frozenset(op.properties.items()), tuple(operands))

    def _polynomial(self, value: SSAValue) -> Polynomial:
        found = self.known.get(value)
        if found is None:
            found = self.known[value] = self._read(value)
        return found

    def _read(self, value: SSAValue) -> Polynomial:
        constant = constant_integer(value)
        if constant is not None:
            return Polynomial.number(constant)
        match value.owner:
            case arith.AddiOp(lhs=one, rhs=other):
                return self._polynomial(one) + self._polynomial(other)
            case arith.SubiOp(lhs=one, rhs=other):
                return self._polynomial(one) - self._polynomial(other)
            case arith.MuliOp(lhs=one, rhs=other):
                return self._polynomial(one) * self._polynomial(other)
            case Block() as block if isinstance(loop := block.parent_op(), scf.ForOp):
                assert isinstance(value, BlockArgument)
                return self._counted(value, loop)
            case _:
                return Polynomial.atom(value)

    def _counted(self, value: BlockArgument, loop: scf.ForOp) -> Polynomial:
        """The number of the loop, or a counter that grows by the same amount in each iteration."""
        times = Polynomial.atom(Iteration(loop))
        if value.index == 0:
            return self._polynomial(loop.lb) + self._polynomial(loop.step) * times
        supposed = _Numbers(known={**self.known, value: Polynomial.atom(value)})
        growth = supposed._polynomial(end_of(loop.body.block).operands[value.index - 1]) - Polynomial.atom(value)
        if all(isinstance(atom, SSAValue) and dominates(cast(SSAValue, atom), loop) for atom in growth.atoms):
            return self._polynomial(loop.iter_args[value.index - 1]) + growth * times
        return Polynomial.atom(value)
