"""overlap-dots: rotates a loop of two dots, so that tensor cores multiply one while threads use the sums of the other.

    for i:                                 if there is a step:
        wait for a, b, d                       wait for a, b, d;  s = a · b;  p = f(s);  wait for the next a, b, d
        s = a · b                              for i from the second step:
        p = f(s)                   ⟶               c = g(c)
        c = g(c) + p · d                           s = a · b and c' = c + p · d begin
                                                   wait for s;  p' = f(s);  wait for the next a, b, d
                                                   wait for c'
                                                   c, p = c', p'
                                               c = g(c) + p · d

In attention, `f` is a softmax. It takes about as long as a product, and tensor cores would idle meanwhile.

The first dot and `f` are the early stage. The second dot and the operations on its sums are the late stage, of the step
before. The loop carries what the late stage reads of its step. Copies are late too, because the other dot still reads
the slot that they would fill. So they begin one step later.

The wait for the copies of the next step is a loop. The assembler moves computations behind the wait for a dot, but not
out of that loop, so `f` stays before both.

Input and output are valid tile IR with encodings, after ring-copies. All copies are boxes.

Source: Shah et al., FlashAttention-3 (2024), section 3.2, for the order of the two products.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import is_zero
from louver.analysis.passages import end_of
from louver.compile.plan.encode.anchors import is_tile
from louver.compile.plan.encode.unit import (
    by_warpgroups,
    product_left,
    promoted_columns,
    warpgroup_instruction,
)
from louver.compile.plan.feeds.steps_ahead import taken
from louver.compile.rewrite.insert import carrying, end_with, insert, insert_before, move
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.staging import in_shared
from louver.ir.tile.types import memory_bytes, register_encoding, tensor_of
from louver.isa.instruction import LANES, REGISTER_BITS

LEAST_SLOTS = 3
"""Slots of a ring: one for the step of each dot, and one to fill."""

MOST_HELD = 150
"""Most registers of a thread for sums and for what the late stage reads. The early stage needs others for its scores."""


def overlap_dots(module: ModuleOp, warps: int) -> None:
    """Rewrites loops in place. warps: warps of a CTA."""
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp)]:
        loops = [op for op in function.body.walk() if isinstance(op, scf.ForOp)]
        found = [each for each in map(_Stages.of, loops) if each and each.held <= MOST_HELD * LANES * warps]
        for each in found:
            each.rotate()
        if found:
            remove_dead(function)


@dataclass(frozen=True, slots=True)
class _Stages:
    """The stages of a loop.

    first, second: the dots.
    wait: the wait for the copies of the step.
    copies: the copies that begin in the step.
    late: the operations of the late stage.
    sums: the positions, among what the loop carries, of values that only the late stage reads and computes.
    """

    loop: scf.ForOp
    first: tt.DotOp
    second: tt.DotOp
    wait: tt.WaitBarrierOp
    copies: tt.BoxCopiesOp
    late: set[Operation]
    sums: set[int]

    @classmethod
    def of(cls, loop: scf.ForOp) -> _Stages | None:
        """The stages of a loop that can be rotated; None for another loop."""
        block = loop.body.block
        dots = [op for op in loop.body.walk() if isinstance(op, tt.DotOp)]
        if len(dots) != 2 or not all(map(_is_plain, dots)) or not all(map(_may_move, block.ops)):
            return None
        waits = [op for op in block.ops if isinstance(op, tt.WaitBarrierOp)]
        copies = [op for op in block.ops if isinstance(op, tt.BoxCopiesOp)]
        rings = [op.memory.owner for op in block.ops if isinstance(op, tt.SlotOp)]
        slots = min((each.slots.value.data for each in rings if isinstance(each, tt.LocalAllocOp)), default=0)
        if len(waits) != 1 or len(copies) != 1 or slots < LEAST_SLOTS:
            return None
        first, second = dots
        late, sums = _followers(second, block)
        if first in late or second not in _followers(first, block)[0] or not is_zero(first.c):
            return None
        # If threads store what they computed, the store and its barrier take as long as the overlap gains.
        if in_shared(product_left(second)[0]):
            return None
        late.add(copies[0])
        for op in reversed(block.ops):
            if _comes_late(op, late):
                late.add(op)
        found = cls(loop, first, second, waits[0], copies[0], late, sums)
        return None if any(in_shared(each) for each in found.passed if is_tile(each)) else found

    @property
    def passed(self) -> list[SSAValue]:
        """What the late stage reads of its step: values of the early stage, and what the loop carries."""
        block = self.loop.body.block
        own = {block.args[index + 1] for index in self.sums}
        read = dict.fromkeys(value for op in block.ops if op in self.late for value in taken(op))
        return [
            each
            for each in read
            if each not in own and each.owner not in self.late and (each.owner is block or each.owner.parent is block)
        ]

    @property
    def held(self) -> int:
        """Registers of all threads for the sums of both dots and for the tiles that the late stage reads."""
        tiles = [tensor_of(each) for each in (self.first.d, self.second.d, *filter(is_tile, self.passed))]
        bits = sum(8 * prod(each.get_shape()) * memory_bytes(each.element_type) for each in tiles)
        return bits // REGISTER_BITS["b32"]

    def rotate(self) -> None:
        """Rewrite the loop."""
        loop, block, passed = self.loop, self.loop.body.block, self.passed
        early = [op for op in block.ops if op not in self.late and op is not block.last_op]
        late = [op for op in block.ops if op in self.late]
        # Without a step, there is no copy to wait for.
        runs = insert_before(loop, CmpiOp(loop.lb, loop.ub, "slt"))
        inside, otherwise = (Block([scf.YieldOp(*loop.iter_args)]) for _ in range(2))
        types = [each.type for each in loop.results]
        branch = insert(loop, scf.IfOp(runs, types, Region(inside), Region(otherwise)), loop)
        end = end_of(inside)
        end.location = loop.location

        known = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
        _clone(early, known, end)
        given = [known.get(value, value) for value in end_of(block).operands]
        following = self._await_next(end, loop, early, known, given)
        given = [loop.iter_args[at] if at in self.sums else each for at, each in enumerate(given)]

        # What the loop carries on anyway is not carried twice.
        held = {value: block.args[at + 1] for at, value in enumerate(end_of(block).operands) if at not in self.sums}
        further = [each for each in passed if each not in held]
        held |= {each: block.insert_arg(each.type, len(block.args)) for each in further}
        for each in (inner for op in late for inner in op.walk()):
            each.operands = [held[value] if value in passed else value for value in each.operands]
        loop.operands[0] = following
        new = carrying(loop, [*given, *(known[each] for each in further)], [*end_of(block).operands, *further])
        move(end, new)
        Rewriter.replace_op(loop, [], branch.results)

        known = dict[SSAValue, SSAValue](zip(block.args[1:], new.results, strict=True))
        _clone([op for op in late if op is not self.copies], known, end)
        ends = end_of(block).operands
        end_with(inside, [known[ends[at]] if at in self.sums else new.results[at] for at in range(len(types))])
        self._order(new, early, late)

    def _await_next(
        self,
        before: Operation,
        loop: scf.ForOp,
        early: Sequence[Operation],
        known: Mapping[SSAValue, SSAValue],
        ends: Sequence[SSAValue],
    ) -> SSAValue:
        """Wait for the copies of the next step; without one, again for those of this step, which have arrived.

        known: maps values of the body to those of the step. ends: what the step carries on.
        Returns the number of the next step; without one, the upper bound.
        """
        arguments = loop.body.block.args
        number = known[arguments[0]]
        # The number of the next step may overflow. The difference to the upper bound fits as unsigned.
        left = insert_before(before, arith.SubiOp(loop.ub, number))
        more = insert_before(before, CmpiOp(loop.step, left, "ult"))
        following = insert_before(before, arith.AddiOp(number, loop.step))
        makers = _makers(self.wait, early)
        read = {value for op in makers for value in taken(op)}
        there: dict[SSAValue, SSAValue] = {
            each: insert_before(before, SelectOp(more, then, known[each]))
            for each, then in zip(arguments, (following, *ends), strict=True)
            if each in read
        }
        _clone([op for op in early if op in makers], there, before)
        return insert_before(before, SelectOp(more, following, loop.ub))

    def _order(self, loop: scf.ForOp, early: Sequence[Operation], late: Sequence[Operation]) -> None:
        """Order the operations of the body. Both dots begin together, and run on until their sums are read."""
        first, second, arguments, end = self.first, self.second, loop.body.block.args, end_of(loop.body.block)
        made, begun = _makers(second, late), _makers(self.copies, late)
        at = early.index(first)
        ready = next(place for place, op in enumerate(early) if any(value is first.d for value in taken(op)))
        order = [*(op for op in late if op in made), *early[:at], first, second]
        # Threads have synchronized before the dots, so the copies may follow.
        order += [*(op for op in late if op in begun - made), *early[at + 1 : ready], _wait(first, 1), *early[ready:]]
        order += [last := _wait(second, 0), *(op for op in late if op not in begun | made)]
        for op in order:
            if op.parent is not None:
                op.detach()
            Rewriter.insert_op(op, InsertPoint.before(end))
        self._await_next(last, loop, early, dict(zip(arguments, arguments, strict=True)), end.operands)
        Rewriter.erase_op(self.wait)


def _is_plain(op: tt.DotOp) -> bool:
    """Whether warpgroups multiply a dot at once, into sums of 32 bits, in its step."""
    encoding = register_encoding(op.d.type)
    if not isinstance(encoding, tt.MmaAttr) or not by_warpgroups(op) or op.parts > 1 or op.in_flight is not None:
        return False
    return promoted_columns(op) is None and warpgroup_instruction(op, encoding).d_fragment.packed == 1


def _may_move(op: Operation) -> bool:
    """Whether an operation may move to another step. The two stages keep the order of copies and waits."""
    if isinstance(op, tt.LoadOp):
        return not op.fresh
    if isinstance(op, scf.ForOp | scf.WhileOp | scf.IfOp):
        return False
    return has_no_effect(op) or isinstance(op, tt.WaitBarrierOp | tt.BoxCopiesOp)


def _followers(op: Operation, block: Block) -> tuple[set[Operation], set[int]]:
    """An operation of a loop, and all that depend on it, also in later steps; and the positions of the carried values
    that do.
    """
    found, sums, end = {op}, set[int](), end_of(block)
    while True:
        own = {block.args[at + 1] for at in sums}
        for each in block.ops:
            if each is not end and any(value in own or value.owner in found for value in taken(each)):
                found.add(each)
        reached = {at for at, value in enumerate(end.operands) if value in own or value.owner in found}
        if reached <= sums:
            return found, sums
        sums |= reached


def _comes_late(op: Operation, late: Container[Operation]) -> bool:
    """Whether only the late stage needs an operation, and less is carried for it than its results."""
    users = [use.operation for result in op.results for use in result.uses]
    if not users or not all(user in late for user in users):
        return False
    if isinstance(op, tt.BroadcastOp | tt.ExpandDimsOp | tt.SplatOp | arith.ConstantOp):
        return True
    if isinstance(op, tt.ConvertLayoutOp) and in_shared(op.src):
        return True
    return all(in_shared(each) or not is_tile(each) for each in op.results) and has_no_effect(op)


def _makers(op: Operation, among: Sequence[Operation]) -> set[Operation]:
    """An operation, and those among some others, in order, that compute what it reads."""
    found = {op}
    for each in reversed(among):
        if not found.isdisjoint(use.operation for result in each.results for use in result.uses):
            found.add(each)
    return found


def _clone(operations: Iterable[Operation], known: dict[SSAValue, SSAValue], before: Operation) -> None:
    """Clone operations before another one. known: maps values; the results are added to it."""
    for op in operations:
        new = op.clone(known)
        Rewriter.insert_op(new, InsertPoint.before(before))
        for each, old in zip(new.walk(), op.walk(), strict=True):
            each.location = old.location


def _wait(dot: tt.DotOp, pendings: int) -> tt.DotWaitOp:
    """A wait for a dot, which becomes async. Its result takes the place of the sums."""
    wait = tt.DotWaitOp(dot.d, pendings)
    wait.location = dot.location
    dot.d.replace_uses_with_if(wait.result, lambda use: use.operation is not wait)
    dot.properties["isAsync"] = UnitAttr()
    return wait
