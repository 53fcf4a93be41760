"""count-loops: changes a while loop that counts to a loop over a range.

`k = 0; while k < K: …; k += BK` becomes `for k in range(0, K, BK)`. The comparison (`<`, `<=`, `>`, `>=`) may use the
counter, or its sum or difference with a value that the loop does not change. The counter increases or decreases by a
positive constant, by the number of programs, or by a product of these. Other while loops, such as a loop that takes its
work from a queue, do not change.

`go = True; while go: …; k += BK; go = k < K` runs once at least, so it becomes `for k in range(0, max(K, 1), BK)`. With
`go = k < K` before it, it is the loop above.

Overflow of 32 bits: `k += BK` does not overflow if K is below 2**31 - BK. Both loops then have the same iterations,
none if K <= 0. For a larger K, `k < K` is true again after k has overflowed, and the user's loop does not end. A
decreasing loop counts from its end up to its start (`K - k`), as ranges of Triton do. Then the start must be below
2**31 - BK.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.traits import is_side_effect_free

from louver.analysis.integers import constant_integer, position
from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, insert_before, integer, move
from louver.ir.comparisons import CmpiOp
from louver.ir.tile import GetNumProgramsOp


def count_loops(module: ModuleOp) -> None:
    """Rewrite loops in place, inner loops first."""
    for loop in reversed([op for op in module.walk() if isinstance(op, scf.WhileOp)]):
        _test_first(loop)
        count = _counted(loop)
        if count is not None:
            _rewrite(loop, count)


@dataclass(frozen=True, slots=True)
class _Count:
    """The counter of a while loop, and its end.

    counter: its index among the values that the loop carries.
    compared, bound: the operands of the comparison in the first region.
    rises: whether `compared` increases.
    inclusive: whether the loop continues if both are equal.
    step: the amount of each iteration.
    up: whether the amount is added to the counter, or subtracted from it.
    """

    counter: int
    compared: SSAValue
    bound: SSAValue
    rises: bool
    inclusive: bool
    step: int | Operation
    up: bool


_SWAPPED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle"}
"""Predicates of signed integers, each with the one for exchanged operands."""


def _test_first(loop: scf.WhileOp) -> None:
    """Compare the counter of a loop before an iteration, if the loop does so after it."""
    before, after = loop.before_region.block, loop.after_region.block
    going_on, end = before.last_op, end_of(after)
    assert isinstance(going_on, scf.ConditionOp)
    going = going_on.condition
    if going not in before.args or len(before.ops) > 1 or going in going_on.args:
        return
    place = position(going, before.args)
    test = end.operands[place].owner
    if not isinstance(test, CmpiOp) or test.parent is not after:
        return
    for compared, bound, predicate in _sides(test):
        counter = next((index for index, each in enumerate(end.operands) if each is compared), None)
        if counter is None or loop.is_ancestor(bound.owner):
            continue
        step, rises = _step(loop, counter), predicate in ("slt", "sle")
        if step is None or step[1] != rises:
            continue
        begins, least = loop.arguments[place], loop.arguments[counter]
        if constant_integer(begins):
            # The first iteration always runs.
            if predicate in ("slt", "sgt"):
                one = integer(loop, 1, least.type)
                least = insert_before(loop, (arith.AddiOp if rises else arith.SubiOp)(least, one))
            bound = insert_before(loop, (arith.MaxSIOp if rises else arith.MinSIOp)(bound, least))
        elif not _is_test(begins.owner, least, bound, predicate):
            continue
        going_on.operands[0] = insert_before(going_on, CmpiOp(before.args[counter], bound, predicate))
        return


def _is_test(op: Operation | Block, first: SSAValue, bound: SSAValue, predicate: str) -> bool:
    """Whether an operation is the comparison of a counter's first value."""

    def same(one: SSAValue, other: SSAValue) -> bool:
        number = constant_integer(one)
        return one is other or (number is not None and number == constant_integer(other))

    return isinstance(op, CmpiOp) and any(
        name == predicate and same(left, first) and same(right, bound) for left, right, name in _sides(op)
    )


def _sides(test: CmpiOp) -> list[tuple[SSAValue, SSAValue, str]]:
    """Both operands of a comparison of signed integers, each with the other one and the predicate."""
    name = test.name_of_predicate
    if name not in _SWAPPED:
        return []
    return [(test.lhs, test.rhs, name), (test.rhs, test.lhs, _SWAPPED[name])]


def _counted(loop: scf.WhileOp) -> _Count | None:
    """The counter of a loop; None without one, or if the condition of the loop depends on more than a counter."""
    before = loop.before_region.block
    end = before.last_op
    assert isinstance(end, scf.ConditionOp)
    test = end.condition.owner
    if not isinstance(test, CmpiOp) or test.parent is not before:
        return None
    if not all(op is end or (not op.regions and is_side_effect_free(op)) for op in before.ops):
        return None
    if not all(each in before.args or _is_fixed(each, loop) for each in end.args):
        return None
    for compared, bound, predicate in _sides(test):
        found = _varying(compared, loop)
        if found is None or not _is_fixed(bound, loop):
            continue
        counter, same = position(found[0], before.args), found[1]
        step = _step(loop, counter)
        if step is not None and (step[1] == same) == (predicate in ("slt", "sle")):
            rises, inclusive = step[1] == same, predicate in ("sle", "sge")
            return _Count(counter, compared, bound, rises, inclusive, *step)
    return None


def _is_fixed(value: SSAValue, loop: scf.WhileOp) -> bool:
    """Whether a value of the first region does not change between iterations."""
    owner = value.owner
    if isinstance(owner, Block):
        return owner is not loop.before_region.block
    return owner.parent is not loop.before_region.block or all(_is_fixed(each, loop) for each in owner.operands)


def _varying(value: SSAValue, loop: scf.WhileOp) -> tuple[BlockArgument, bool] | None:
    """The carried value that determines a value of the first region, and whether both increase together; None for other
    values.

    The relation must be one to one.
    """
    before = loop.before_region.block
    if isinstance(value, BlockArgument) and value.owner is before:
        return value, True
    op = value.owner
    if not isinstance(op, arith.AddiOp | arith.SubiOp) or op.parent is not before:
        return None
    for one, other, same in ((op.lhs, op.rhs, True), (op.rhs, op.lhs, isinstance(op, arith.AddiOp))):
        if isinstance(one, BlockArgument) and one.owner is before and _is_fixed(other, loop):
            return one, same
    return None


def _step(loop: scf.WhileOp, counter: int) -> tuple[int | Operation, bool] | None:
    """The amount that an iteration adds to the counter (True), or subtracts (False); None if it is not one positive
    number.
    """
    before, after = loop.before_region.block, loop.after_region.block
    end, going_on = after.last_op, before.last_op
    assert end is not None and isinstance(going_on, scf.ConditionOp)
    op = end.operands[counter].owner
    if not isinstance(op, arith.AddiOp | arith.SubiOp) or op.parent is not after:
        return None
    sides = [(op.lhs, op.rhs)] + ([(op.rhs, op.lhs)] if isinstance(op, arith.AddiOp) else [])
    for number, step in sides:
        if not isinstance(number, BlockArgument) or number.owner is not after:
            continue
        if going_on.args[number.index] is not before.args[counter]:
            continue
        up, constant = isinstance(op, arith.AddiOp), constant_integer(step)
        if constant:
            return abs(constant), up == (constant > 0)
        if isinstance(step.owner, Operation) and _is_programs(step):
            return step.owner, up
    return None


def _is_programs(step: SSAValue) -> bool:
    """Whether a number is a positive multiple of the number of programs."""
    match step.owner:
        case GetNumProgramsOp():
            return True
        case arith.MuliOp(lhs=one, rhs=other):
            pairs = (one, other), (other, one)
            return any(
                _is_programs(left) and ((constant_integer(right) or 0) > 0 or _is_programs(right))
                for left, right in pairs
            )
        case _:
            return False


def _rewrite(loop: scf.WhileOp, count: _Count) -> None:
    before, after, end = loop.before_region.block, loop.after_region.block, loop.before_region.block.last_op
    assert isinstance(end, scf.ConditionOp)
    given, carried = list(loop.arguments), list(before.args)
    # For each result and each argument of the second region: the carried value, or the fixed value.
    passed = [position(each, carried) if each in carried else each for each in end.args]
    first, last, step = _range(loop, count)
    is_asked_for = any(which == count.counter and loop.results[n].first_use for n, which in enumerate(passed))
    # What is not passed on was tested only.
    kept = [index for index in range(len(carried)) if index in passed and (index != count.counter or is_asked_for)]
    body = Block(arg_types=[first.type, *(carried[index].type for index in kept)])
    inside: dict[int, SSAValue] = dict(zip(kept, body.args[1:], strict=True))
    inside[count.counter] = _counter(body, given[count.counter], first, count, loop)
    for argument, which in zip(after.args, passed, strict=True):
        value = inside[which] if isinstance(which, int) else which
        value.name_hint = argument.name_hint
        argument.replace_all_uses_with(value)
    _move(after, body, kept, count)
    new = scf.ForOp(first, last, step, [given[index] for index in kept], Region(body))
    insert(loop, new, loop)
    outside: dict[int, SSAValue] = dict(zip(kept, new.results, strict=True))
    for result, which in zip(loop.results, passed, strict=True):
        if result.first_use:
            value = outside[which] if isinstance(which, int) else which
            value.name_hint = result.name_hint
            result.replace_all_uses_with(value)
    test = end.condition.owner
    Rewriter.erase_op(loop)
    if isinstance(test, Operation) and not test.results[0].first_use:
        Rewriter.erase_op(test)


def _range(loop: scf.WhileOp, count: _Count) -> tuple[SSAValue, SSAValue, SSAValue]:
    """Start, end and step of the range.

    The operations of the first region move before the loop, for the first iteration.
    """
    before = loop.before_region.block
    compared, bound = count.compared, count.bound
    for argument, first in zip(before.args, loop.arguments, strict=True):
        compared = first if compared is argument else compared
        argument.replace_all_uses_with(first)
    for op in [op for op in before.ops if op is not before.last_op]:
        move(loop, op)
    if count.inclusive:
        # If this overflows, the user's loop does not end.
        bound = insert_before(
            loop, (arith.AddiOp if count.rises else arith.SubiOp)(bound, integer(loop, 1, bound.type))
        )
    if isinstance(count.step, int):
        step = integer(loop, count.step, compared.type)
    else:
        step = _cloned(loop, count.step)
    return (compared, bound, step) if count.rises else (bound, compared, step)


def _cloned(loop: scf.WhileOp, op: Operation) -> SSAValue:
    """Clone a step that the body computes to before the loop."""
    operands = {each: _cloned(loop, each.owner) for each in op.operands if isinstance(each.owner, Operation)}
    return insert(loop, op.clone(dict(operands)), op).results[0]


def _counter(body: Block, given: SSAValue, first: SSAValue, count: _Count, loop: scf.WhileOp) -> SSAValue:
    """The counter in the body: its first value, plus or minus the progress of the range."""
    number: SSAValue = body.args[0]
    if count.up and first is given:
        return number
    number.name_hint = "range"
    operations: list[Operation] = []
    if constant_integer(first) != 0:
        operations.append(arith.SubiOp(number, first))
        number = operations[-1].results[0]
    if not (count.up and constant_integer(given) == 0):
        operations.append((arith.AddiOp if count.up else arith.SubiOp)(given, number))
        number = operations[-1].results[0]
    for op in operations:
        op.location = loop.location
        body.add_op(op)
    return number


def _move(after: Block, body: Block, kept: Sequence[int], count: _Count) -> None:
    """Move the operations of the second region to the end of the body, and yield the values that are kept."""
    end = end_of(after)
    values = list(end.operands)
    Rewriter.erase_op(end)
    Rewriter.inline_block(after, InsertPoint.at_end(body))
    last = scf.YieldOp(*(values[index] for index in kept))
    last.location = end.location
    body.add_op(last)
    dropped = {values[index].owner for index in range(len(values)) if index not in kept}
    for op in [op for op in reversed(body.ops) if op in dropped]:
        if is_side_effect_free(op) and not any(result.first_use for result in op.results):
            Rewriter.erase_op(op)
