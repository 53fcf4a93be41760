"""drop-carried: computes a value that a loop made for the next iteration in the iteration that uses it.

`pointers = base + (k + 1) * BK` at the end of a step is `base + k * BK` in the next one. If the value before the loop is also that
of `base + k * BK` in the first step, no step needs what another one computed. The rule is applied again to what is left: a
loop may make a value two or three steps ahead, and pass it from one carried value to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from louver.analysis.effects import has_no_effect, takes_any
from louver.analysis.exact import Exact
from louver.analysis.integers import constant_integer, position
from louver.analysis.passages import end_of
from louver.compile.rewrite.insert import insert, insert_before, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.tile import AddPtrOp, FuncOp


def drop_carried(module: ModuleOp) -> None:
    """Rewrite in place. The values must not be used after the loop."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loops = [op for op in function.body.walk() if isinstance(op, scf.ForOp)]
        found = [_drop(each) for each in loops]
        if any(found):
            remove_dead(function)


def _drop(loop: scf.ForOp) -> bool:
    """Compute carried values of a loop. Returns whether there were any."""
    start = loop.body.block.first_op
    assert start is not None
    earlier, found = _Earlier(loop, _steps(loop), start), False
    while (ready := _ready(loop, earlier)) is not None:
        carried, following = ready
        value = earlier.of(following)
        value.name_hint = value.name_hint or carried.name_hint
        carried.replace_all_uses_with(value)
        found = True
    return found


def _steps(loop: scf.ForOp) -> dict[SSAValue, SSAValue]:
    """The number of the loop, and values that each iteration moves by one amount, with the amounts."""
    number, *carried = loop.body.block.args
    found: dict[SSAValue, SSAValue] = {number: loop.step}
    for each, following in zip(carried, end_of(loop.body.block).operands, strict=True):
        op = following.owner
        if isinstance(op, arith.AddiOp | AddPtrOp) and each in op.operands:
            by = op.operands[op.operands[0] is each]
            if not loop.is_ancestor(by.owner):
                found[each] = by
    return found


def _ready(loop: scf.ForOp, earlier: _Earlier) -> tuple[SSAValue, SSAValue] | None:
    """A used value that an iteration makes for the next one, and what it passes on; None if there is none."""
    number, *carried = loop.body.block.args
    firsts: dict[SSAValue, SSAValue] = {number: loop.lb, **dict(zip(carried, loop.iter_args, strict=True))}
    before_first = Exact({each: (firsts[each], by) for each, by in earlier.steps.items()})
    for each, following, result in zip(carried, end_of(loop.body.block).operands, loop.results, strict=True):
        is_passed_on = each.first_use is not None and result.first_use is None and each not in earlier.steps
        if is_passed_on and earlier.has(following) and before_first.of(following) == before_first.of(firsts[each]):
            return each, following
    return None


@dataclass(slots=True)
class _Earlier:
    """Computes at the beginning of a loop's body what values of the body were in the iteration before.

    steps: values whose earlier value is known, with the amount that each iteration adds.
    start: the operation before which earlier values are computed. made: these, by value. whole: see `has`.
    """

    loop: scf.ForOp
    steps: Mapping[SSAValue, SSAValue]
    start: Operation
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    whole: set[SSAValue] = field(default_factory=set[SSAValue])

    def has(self, value: SSAValue) -> bool:
        """Whether only `steps` decide about a value, in any iteration, also one that the loop does not have."""
        op = value.owner
        if not self.loop.is_ancestor(op) or value in self.steps or value in self.whole:
            return True
        if isinstance(op, Block) or op.regions or not (has_no_effect(op) and takes_any(op)):
            return False
        if not all(map(self.has, op.operands)):
            return False
        self.whole.add(value)
        return True

    def of(self, value: SSAValue) -> SSAValue:
        """The value in the iteration before."""
        if not self.loop.is_ancestor(value.owner):
            return value
        found = self.made.get(value)
        if found is None:
            found = self.made[value] = self._make(value)
        return found

    def _make(self, value: SSAValue) -> SSAValue:
        op = value.owner
        if isinstance(op, Block):
            return self._moved(value, integer(self.start, 0, self.steps[value].type))
        if isinstance(op, arith.AddiOp | AddPtrOp):
            one, other = op.operands
            for each, ahead in ((one, other), (other, one)):
                if each in self.steps and ahead.type == self.steps[each].type:
                    return self._moved(each, self.of(ahead))
        operands = {each: self.of(each) for each in op.operands}
        return insert(self.start, op.clone(operands), op).results[position(value, op.results)]

    def _moved(self, value: SSAValue, ahead: SSAValue) -> SSAValue:
        """What is ahead of a value, in the iteration before. `k + step` is `k` there."""
        step = self.steps[value]
        number, by = constant_integer(ahead), constant_integer(step)
        if ahead is step or (number is not None and number == by):
            return value
        if number is None or by is None:
            amount = insert_before(self.start, arith.SubiOp(ahead, step))
        else:
            amount = integer(self.start, number - by, step.type)
        made = arith.AddiOp if value.type == step.type else AddPtrOp
        return insert_before(self.start, made(value, amount))
