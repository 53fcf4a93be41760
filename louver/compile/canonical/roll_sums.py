"""roll-sums: products of pieces of K without a loop become a loop over them; one product of all of K becomes a loop of one step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from louver.analysis.integers import is_zero, literal
from louver.compile.rewrite.insert import insert, integer
from louver.compile.rewrite.operand_chain import OperandChain, append, operand_chain
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import DotOp, FuncOp, sparse_encoding
from louver.ir.tile.types import tensor_of


def roll_sums(module: ModuleOp) -> None:
    """Rewrite in place: dots with a sparse operand that stand outside of loops, whose operands begin at 0 along K, and those that
    add to such a dot what begins where it ended.

    Two sums become one loop where nothing between them uses the first.
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
    """A dot, what adds it to the sum if it does not do so itself, and both of its operands."""

    dot: DotOp
    addition: arith.AddfOp | arith.AddiOp | None
    left: OperandChain
    right: OperandChain

    @property
    def total(self) -> SSAValue:
        """The sum with it."""
        return self.dot.d if self.addition is None else self.addition.result

    @property
    def step(self) -> int:
        """Columns of K that it has."""
        return tensor_of(self.dot.a).get_shape()[1]


class _Sum(NamedTuple):
    """Dots over the pieces of K from 0 on, in order, and what the first is added to."""

    terms: tuple[_Term, ...]
    first: SSAValue

    @property
    def last(self) -> Operation:
        """The operation after which the sum is known."""
        return cast(Operation, self.terms[-1].total.owner)


def _sums(block: Block) -> Iterator[_Sum]:
    """Sums that begin at 0, each as long as it goes on."""
    for dot in [op for op in block.ops if isinstance(op, DotOp)]:
        term = _term(dot, _addition(dot), at=0)
        if term is None:
            continue
        terms = [term]
        while (following := _following(terms)) is not None:
            terms.append(following)
        yield _Sum(tuple(terms), dot.c)


def _addition(dot: DotOp) -> arith.AddfOp | arith.AddiOp | None:
    """The addition of a first dot to zeros, where a sum adds each of its dots."""
    users = list(dot.d.uses)
    op = users[0].operation if len(users) == 1 and is_zero(dot.c) else None
    if isinstance(op, arith.AddfOp | arith.AddiOp) and is_zero(op.operands[1 - users[0].index]):
        return op
    return None


def _term(dot: DotOp, addition: arith.AddfOp | arith.AddiOp | None, at: int) -> _Term | None:
    """The dot as part of a sum; None unless it has a sparse operand and both begin at `at` along K."""
    if not any(sparse_encoding(operand.type) is not None for operand in (dot.a, dot.b)):
        return None
    left, right = operand_chain(dot.a, dot, -1), operand_chain(dot.b, dot, -2)
    if left is None or right is None or not literal(left.position) == literal(right.position) == at:
        return None
    return _Term(dot, addition, left, right)


def _following(terms: Sequence[_Term]) -> _Term | None:
    """The dot that is added to the last one, and begins where that ended."""
    last = terms[-1]
    uses = list(last.total.uses)
    if len(uses) != 1:
        return None
    op, addition = uses[0].operation, None
    if isinstance(op, arith.AddfOp | arith.AddiOp):
        addition = op
        op = op.operands[1 - uses[0].index].owner
        if not isinstance(op, DotOp) or not op.d.has_one_use() or not is_zero(op.c):
            return None
    if not isinstance(op, DotOp) or (addition is None and op.c is not last.total):
        return None
    found = _term(op, addition, at=len(terms) * last.step)
    if found is None or found.dot.properties != last.dot.properties or found.step != last.step:
        return None
    # The first one adds to zeros, in whatever way.
    if len(terms) > 1 and (addition is None) != (last.addition is None):
        return None
    alike = all(each.left.reads_like(found.left) and each.right.reads_like(found.right) for each in terms)
    return found if alike else None


def _may_wait(one: _Sum, other: _Sum) -> bool:
    """Whether a sum may be computed as late as another one of as many steps."""
    if [each.step for each in one.terms] != [each.step for each in other.terms]:
        return False
    return all(
        use.operation.parent is one.last.parent and other.last.is_before_in_block(use.operation)
        for use in one.terms[-1].total.uses
    )


def _loop(sums: Sequence[_Sum]) -> None:
    """One loop for these, where the last of them is known."""
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
        old = each.terms[-1].total
        total.name_hint = old.name_hint
        old.replace_all_uses_with(total)


def _added(term: _Term, k: SSAValue, partial: SSAValue, body: Block) -> SSAValue:
    """The sum in a step of the loop: the dot of what is read at k, added."""
    dot = term.dot
    a, b = (chain.copied(k, body) for chain in (term.left, term.right))
    c = partial if term.addition is None else dot.c
    product = DotOp.build(operands=[a, b, [], c], properties=dict(dot.properties), result_types=[dot.d.type])
    value = append(body, product, dot)
    if term.addition is None:
        return value
    add = arith.AddfOp if isinstance(term.addition, arith.AddfOp) else arith.AddiOp
    return append(body, add(partial, value), term.addition)
