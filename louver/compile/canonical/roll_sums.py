"""roll-sums: changes a sum of products of pieces of K without a loop to a loop.

A single product of all of K becomes a loop of one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Region, SSAValue

from louver.analysis.integers import literal
from louver.compile.rewrite.insert import insert, integer
from louver.compile.rewrite.operand_chain import OperandChain, append, operand_chain
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DotOp, FuncOp, sparse_encoding
from louver.ir.tile.types import tensor_of


def roll_sums(module: ModuleOp) -> None:
    """Rewrite in place: dots with a sparse operand outside of loops.

    The operands of the first dot must begin at 0 along K. Those of a dot that adds to it must begin where the dot
    before ended. Two sums become one loop if nothing between them uses the first one.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        waiting: list[_Sum] = []
        for each in sorted(
            _sums(function.body.block), key=lambda each: function.body.block.get_operation_index(each.last)
        ):
            if waiting and not (len(waiting) == 1 and _may_wait(waiting[0], each)):
                _loop(waiting)
                waiting = []
            waiting.append(each)
        if waiting:
            _loop(waiting)
            remove_dead(function)


class _Term(NamedTuple):
    """A dot that adds to a sum, and its operands, which begin at `position` along K."""

    dot: DotOp
    left: OperandChain
    right: OperandChain
    position: int

    @property
    def step(self) -> int:
        """Columns of K in the dot."""
        return tensor_of(self.dot.a).get_shape()[1]

    def is_like(self, other: _Term) -> bool:
        """Whether both are pieces of one product."""
        same = self.dot.properties == other.dot.properties and self.step == other.step
        return same and self.left.reads_like(other.left) and self.right.reads_like(other.right)


class _Sum(NamedTuple):
    """Dots over pieces of K from 0 on, in the order of K. first: the value to which they are added. last: the last dot."""

    terms: Sequence[_Term]
    first: SSAValue
    last: DotOp


def _sums(block: Block) -> Iterator[_Sum]:
    """Finds chains of dots, each adding to the one before, that are pieces of one product."""
    taken: set[DotOp] = set()
    for first in [op for op in block.ops if isinstance(op, DotOp)]:
        if first in taken:
            continue
        chain = [first]
        while (following := _following(chain[-1])) is not None:
            chain.append(following)
        taken.update(chain)
        terms = sorted(filter(None, map(_term, chain)), key=lambda each: each.position)
        starts = [each.position for each in terms]
        whole = len(terms) == len(chain) and starts == [place * terms[0].step for place in range(len(terms))]
        # The last one is what the loop reads.
        if whole and all(each.is_like(terms[-1]) for each in terms[:-1]):
            yield _Sum(terms, first.c, chain[-1])


def _following(dot: DotOp) -> DotOp | None:
    """The dot that adds to the result of `dot`, if nothing else uses that result; else None."""
    (use, *others) = [*dot.d.uses] or [None]
    op = None if use is None or others else use.operation
    return op if isinstance(op, DotOp) and op.c is dot.d else None


def _term(dot: DotOp) -> _Term | None:
    """The dot as part of a sum; None if it has no sparse operand, or if its operands do not begin at one constant along
    K.
    """
    if not any(sparse_encoding(operand.type) is not None for operand in (dot.a, dot.b)):
        return None
    left, right = operand_chain(dot.a, dot, -1), operand_chain(dot.b, dot, -2)
    start = None if left is None else literal(left.position)
    if left is None or right is None or start is None or literal(right.position) != start:
        return None
    return _Term(dot, left, right, start)


def _may_wait(one: _Sum, other: _Sum) -> bool:
    """Whether a sum may be computed at the place of another sum with the same steps."""
    if [each.step for each in one.terms] != [each.step for each in other.terms]:
        return False
    return all(
        use.operation.parent is one.last.parent and other.last.is_before_in_block(use.operation)
        for use in one.last.d.uses
    )


def _loop(sums: Sequence[_Sum]) -> None:
    """Replace these sums by one loop at the place of the last one."""
    place, terms = sums[-1].last, sums[-1].terms
    zero, step = integer(place, 0), integer(place, terms[0].step)
    end = step if len(terms) == 1 else integer(place, len(terms) * terms[0].step)
    body = Block(arg_types=[i32, *(each.first.type for each in sums)])
    k, *partials = body.args
    k.name_hint = "k"
    totals: list[SSAValue] = []
    for each, partial in zip(sums, partials, strict=True):
        partial.name_hint = "partial"
        totals.append(_added(each.terms[-1], k, partial, body))
    leave = scf.YieldOp(*totals)
    leave.location = place.location
    body.add_op(leave)
    loop = scf.ForOp(zero, end, step, [each.first for each in sums], Region(body))
    insert(place, loop, place)
    for each, total in zip(sums, loop.results, strict=True):
        each.last.d.replace_all_uses_with(total)


def _added(term: _Term, k: SSAValue, partial: SSAValue, body: Block) -> SSAValue:
    """The sum after a step of the loop: the dot of operands that are read at k."""
    dot = term.dot
    a, b = (chain.copied(k, body) for chain in (term.left, term.right))
    product = DotOp.build(operands=[a, b, [], partial, []], properties=dict(dot.properties), result_types=[dot.d.type])
    return append(body, product, dot)
