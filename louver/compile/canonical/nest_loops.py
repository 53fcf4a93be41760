"""nest-loops: changes one loop over the steps of all tiles to a loop over tiles around a loop over steps.

A persistent kernel may run `for i in range(steps * tiles)` and count the step by hand: it is `i % steps`, or a carried
number that returns to 0 after `steps - 1`. What such a loop does where the step is 0 moves before the inner loop, and
what it does in the last step moves behind it. A loop stays as it is if this changes the order of reads and writes.

The number of steps must be above 0: a constant, or an argument in steps, which the launch checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, i32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from louver.analysis.integers import constant_integer, position, steps_of
from louver.analysis.passages import end_of
from louver.compile.condition_attributes import require_positive
from louver.compile.rewrite.insert import insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile import FuncOp


def nest_loops(module: ModuleOp) -> None:
    """Rewrite in place. Other loops do not change."""
    for function in [op for op in module.body.ops if isinstance(op, FuncOp)]:
        loops = [op for op in function.body.walk() if isinstance(op, scf.ForOp)]
        found = [_nest(function, loop) for loop in loops]
        if any(found):
            remove_dead(function)


def _nest(function: FuncOp, loop: scf.ForOp) -> bool:
    """Replace a loop, if it runs over the steps of several tiles. Returns whether it does."""
    is_plain = constant_integer(loop.lb) == 0 and constant_integer(loop.step) == 1
    if not is_plain or loop.body.block.args[0].type != i32 or any(result.first_use for result in loop.results):
        return False
    for step, counter, steps in _step_numbers(loop):
        times = _quotient(loop.ub, steps)
        positive = _positive(function, steps)
        if times is None or positive is None:
            continue
        if _Nest(loop, step, counter, steps).replace(times):
            for argument in positive:
                require_positive(function, argument)
            return True
    return False


Count = SSAValue | int
"""A number that is known, or computed."""


def _count(value: SSAValue) -> Count:
    constant = constant_integer(value)
    return value if constant is None else constant


def _step_numbers(loop: scf.ForOp) -> Iterator[tuple[SSAValue, int | None, Count]]:
    """Integers of the body that count from 0 to a number of steps again and again: the integer, the position among the carried
    values if it is one or is computed from one, and the number of steps.
    """
    end = end_of(loop.body.block)
    for place, (first, argument, after) in enumerate(
        zip(loop.iter_args, loop.body.block.args[1:], end.operands, strict=True)
    ):
        steps = _period(argument, after)
        if steps is not None and constant_integer(first) == 0:
            yield argument, place, steps
        elif steps is not None and constant_integer(first) == -1 and not isinstance(after.owner, arith.RemSIOp):
            yield after, place, steps
    for op in loop.body.block.ops:
        if isinstance(op, arith.RemSIOp) and op.lhs is loop.body.block.args[0]:
            yield op.result, None, _count(op.rhs)


def _period(before: SSAValue, after: SSAValue) -> Count | None:
    """The number of steps, if `after` is the step that follows the step `before`; else None."""
    match after.owner:
        case SelectOp(cond=condition, lhs=one, rhs=other):
            test = condition.owner
            if not isinstance(test, CmpiOp) or test.lhs is not before:
                return None
            reset, going = (one, other) if test.name_of_predicate in ("eq", "sge") else (other, one)
            if test.name_of_predicate not in ("eq", "ne", "sge", "slt"):
                return None
            return _one_more(test.rhs) if constant_integer(reset) == 0 and _follows(before, going) else None
        case arith.RemSIOp(lhs=going, rhs=steps):
            return _count(steps) if _follows(before, going) else None
        case _:
            return None


def _follows(before: SSAValue, after: SSAValue) -> bool:
    op = after.owner
    return isinstance(op, arith.AddiOp) and op.lhs is before and constant_integer(op.rhs) == 1


def _one_more(last: SSAValue) -> Count | None:
    """The number of steps, for the number of the last step."""
    constant, op = constant_integer(last), last.owner
    if constant is not None:
        return constant + 1
    by = constant_integer(op.rhs) if isinstance(op, arith.AddiOp | arith.SubiOp) else None
    is_less = by == (1 if isinstance(op, arith.SubiOp) else -1)
    return op.lhs if isinstance(op, arith.AddiOp | arith.SubiOp) and is_less else None


def _quotient(whole: SSAValue, steps: Count) -> Count | None:
    """`whole` divided by a number of steps, if there is no rest."""
    constant = constant_integer(whole)
    if constant is not None:
        return constant // steps if isinstance(steps, int) and steps > 0 and constant % steps == 0 else None
    if not isinstance(whole.owner, arith.MuliOp):
        return None
    one, other = whole.owner.operands
    return next((_count(left) for left, right in ((one, other), (other, one)) if _count(right) == steps), None)


def _positive(function: FuncOp, steps: Count) -> tuple[str, ...] | None:
    """The arguments that must be above 0, so that there are steps; None if there may be none."""
    if isinstance(steps, int):
        return () if steps > 0 else None
    found = steps_of(steps)
    name = None if found is None else function.argument_names.get(found[0])
    return None if name is None else (name,)


Edge = Literal["first", "last"]


@dataclass(slots=True)
class _Nest:
    """Both loops, in the place of one.

    step, steps: the number of a step, and of all steps of a tile. counter: see `_step_numbers`.
    """

    loop: scf.ForOp
    step: SSAValue
    counter: int | None
    steps: Count

    @property
    def block(self) -> Block:
        return self.loop.body.block

    @property
    def places(self) -> list[int]:
        """The positions of the carried values, without the counter."""
        return [place for place in range(len(self.loop.iter_args)) if place != self.counter]

    def replace(self, times: Count) -> bool:
        """Insert both loops and remove the old one, if that keeps the order of reads and writes. Returns whether it does."""
        last = [op for op in self.block.ops if isinstance(op, scf.IfOp) and self._edge(op.cond, "last") is not None]
        if len(last) > 1 or any(not is_side_effect_free(op) for op in _behind(last)):
            return False
        first, one = integer(self.loop, 0), integer(self.loop, 1)
        steps, tiles = (integer(self.loop, each) if isinstance(each, int) else each for each in (self.steps, times))
        given = [self.loop.iter_args[place] for place in self.places]
        outer = Block(arg_types=[i32, *(each.type for each in given)])
        around = scf.ForOp(first, tiles, one, given, Region(outer))
        insert(self.loop, around, self.loop)
        done = self._fill(outer, (first, steps, one), last)
        Rewriter.erase_op(self.loop if done else around)
        return done

    def edge_value(self, value: SSAValue, edge: Edge) -> tuple[SSAValue, SSAValue] | None:
        """The value of the first or last step, and that of all others; None if these are not told apart."""
        match value.owner:
            case SelectOp(cond=condition, lhs=one, rhs=other):
                pass
            case scf.IfOp(cond=condition) as op:
                one, other = (end_of(region.block).operands[position(value, op.results)] for region in op.regions)
            case _:
                return None
        holds = self._edge(condition, edge)
        return None if holds is None else (one, other) if holds else (other, one)

    def _edge(self, condition: SSAValue, edge: Edge) -> bool | None:
        """Whether a condition holds in the first or last step alone (True), or in all others (False); else None."""
        test = condition.owner
        if not isinstance(test, CmpiOp) or test.name_of_predicate not in ("eq", "ne"):
            return None
        for one, other in ((test.lhs, test.rhs), (test.rhs, test.lhs)):
            found = constant_integer(other) == 0 if edge == "first" else _one_more(other) == self.steps
            if one is self.step and found:
                return test.name_of_predicate == "eq"
        return None

    def is_last(self, branch: scf.IfOp) -> bool:
        """Whether the first region of a branch is taken in the last step."""
        return bool(self._edge(branch.cond, "last"))

    def _begun(self) -> dict[SSAValue, int]:
        """Values of the body that are carried values in all steps but the first one, with the positions of these."""
        arguments = self.block.args[1:]
        found = dict[SSAValue, int]()
        for op in self.block.ops:
            for value in op.results if isinstance(op, SelectOp | scf.IfOp) and is_side_effect_free(op) else ():
                arms = self.edge_value(value, "first")
                if arms is not None and arms[1] in arguments and arms[1] is not self.step:
                    found[value] = position(arms[1], arguments)
        return found

    def _fill(self, outer: Block, bounds: tuple[SSAValue, SSAValue, SSAValue], last: list[scf.IfOp]) -> bool:
        """Write the body of the outer loop. Returns whether that is possible."""
        number, arguments, ends = self.block.args[0], self.block.args[1:], end_of(self.block).operands
        first, steps, one = bounds
        begun = self._begun()
        given = {arguments[place]: outer.args[1 + index] for index, place in enumerate(self.places)}
        ahead = _Copies(self, "first", outer, {**given, self.step: first})
        ahead.known[number] = ahead.add(arith.MuliOp(outer.args[0], steps))
        starts = self._starts(ahead, begun)
        if starts is None:
            return False
        arms = {place: self.edge_value(ends[place], "last") for place in self.places}
        goes_on = {place: ends[place] if found is None else found[1] for place, found in arms.items()}
        stays = {place for place, value in goes_on.items() if value is arguments[place] or begun.get(value) == place}
        changed = [place for place in self.places if place not in stays]
        inner = Block(arg_types=[i32, *(starts[place].type for place in changed)])
        inside = starts | {place: inner.args[1 + index] for index, place in enumerate(changed)}
        raw = {arguments[place]: value for place, value in inside.items() if place not in begun.values()}
        body = _Copies(self, None, inner, raw | {value: inside[place] for value, place in begun.items()})
        body.known[self.step] = inner.args[0]
        body.known[number] = body.add(arith.AddiOp(ahead.known[number], inner.args[0]))
        for op in self.block.ops:
            if op not in last and not isinstance(op, scf.YieldOp):
                body.copy(op)
        inner.add_op(scf.YieldOp(*(body.known.get(goes_on[place], goes_on[place]) for place in changed)))
        loop = scf.ForOp(*bounds, [starts[place] for place in changed], Region(inner))
        loop.attributes = dict(self.loop.attributes)
        loop.location = self.loop.location
        outer.add_op(loop)
        values = starts | dict(zip(changed, loop.results, strict=True))
        known = {goes_on[place]: values[place] for place in changed} | {
            value: values[place] for value, place in begun.items() if place in stays
        }
        known |= {argument: value for argument, value in raw.items() if value not in inner.args}
        behind = _Copies(self, "last", outer, known)
        behind.known[self.step] = behind.add(arith.SubiOp(steps, one))
        behind.known[number] = behind.add(arith.AddiOp(ahead.known[number], behind.known[self.step]))
        following = behind.finish(last, [values[place] if (each := arms[place]) is None else each[0] for place in arms])
        if following is None:
            return False
        outer.add_op(scf.YieldOp(*following))
        for argument, value, start in zip(outer.args[1:], following, self.places, strict=True):
            # Each tile begins with the same value, such as zeros.
            if value is self.loop.iter_args[start]:
                argument.replace_all_uses_with(value)
        for op in reversed(list(inner.walk())):
            if is_trivially_dead(op):
                Rewriter.erase_op(op)
        return not any(_is_within(each, self.block) for op in outer.walk() for each in op.operands)

    def _starts(self, ahead: _Copies, begun: dict[SSAValue, int]) -> dict[int, SSAValue] | None:
        """What each carried value is in the first step of a tile; None if that is not computed from what is known."""
        found = dict[int, SSAValue]()
        for value, place in begun.items():
            made = ahead.value(value)
            if made is None or place in found:
                return None
            found[place] = made
        return {place: found.get(place, ahead.known[self.block.args[1 + place]]) for place in self.places}


@dataclass(slots=True)
class _Copies:
    """Copies of the operations of a body.

    edge: the step for which they are; None for all. block: where they are added. known: the copies of values.
    """

    nest: _Nest
    edge: Edge | None
    block: Block
    known: dict[SSAValue, SSAValue]

    def add(self, op: arith.AddiOp | arith.SubiOp | arith.MuliOp) -> SSAValue:
        op.location = self.nest.loop.location
        self.block.add_op(op)
        return op.result

    def copy(self, op: Operation) -> None:
        """Copy an operation. Copies of its results that are known already stay known."""
        known = dict(self.known)
        self.block.add_op(op.clone(known))
        self.known = known | self.known

    def finish(self, branches: Sequence[scf.IfOp], values: Sequence[SSAValue]) -> list[SSAValue] | None:
        """Copy what branches of the last step do, and compute values of it; None if they need what the step loads."""
        for branch in branches:
            taken, other = branch.regions if self.nest.is_last(branch) else reversed(branch.regions)
            if any(not is_side_effect_free(op) for block in other.blocks for op in block.ops):
                return None
            for op in [op for block in taken.blocks for op in block.ops if not isinstance(op, scf.YieldOp)]:
                if any(self.value(each) is None for each in _outer_operands(op)):
                    return None
                self.copy(op)
        found = [self.value(each) for each in values]
        return None if None in found else cast("list[SSAValue]", found)

    def value(self, value: SSAValue) -> SSAValue | None:
        """A value in this step, computed again if nothing but arithmetic is needed; else None."""
        found, op = self.known.get(value), value.owner
        if found is not None:
            return found
        if not _is_within(value, self.nest.block):
            return value
        if self.edge is not None and (arms := self.nest.edge_value(value, self.edge)) is not None:
            return self.value(arms[0])
        if not isinstance(op, Operation) or op.regions or not is_side_effect_free(op):
            return None
        if any(self.value(each) is None for each in op.operands):
            return None
        self.copy(op)
        return self.known[value]


def _outer_operands(op: Operation) -> list[SSAValue]:
    """The values that an operation and its regions use, and that are not defined in the regions."""
    used = dict.fromkeys(operand for each in op.walk() for operand in each.operands)
    return [each for each in used if not op.is_ancestor(each.owner)]


def _behind(ops: Sequence[scf.IfOp]) -> Iterator[Operation]:
    """The operations behind each of these in its block."""
    for op in ops:
        following = op.next_op
        while following is not None:
            yield following
            following = following.next_op


def _is_within(value: SSAValue, block: Block) -> bool:
    return block.is_ancestor(value.owner)
