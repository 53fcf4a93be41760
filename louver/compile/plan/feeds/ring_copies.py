"""ring-copies: copies tiles that a loop multiplies unchanged to shared memory ahead of time, into a ring of slots.

    for i:                                     copy steps 0 … s-2 into slots 0 … s-2
        put load(i) into shared memory         for i, read, fill:
        … products …                   ⟶           wait for the copies of step i, in slot `read`
                                                   copy step i + s - 1 into slot `fill`
                                                   … products of slot `read` …
                                                   fill, read = read, read + 1 (0 after the last slot)

One thread copies boxes (describe-boxes). The barrier of the slot counts their bytes, with phases 0 and 1 in turn. All
threads copy other tiles, as asynchronous groups, and each thread waits for its groups. Threads synchronize once a step,
between the wait and the copy. By then all products that read the free slot have ended.

Products of a step may run on until those of the next step have begun (`products_in_flight.py`). Such a ring keeps one
slot more: its copies begin s - 2 steps ahead.

If only steps that take a branch read the tiles, only they are copied, wait and have slots (`taken_steps.py`):

    for i, read, fill, marks:
        if the mark of step i is set:
            wait for the copies of the step in slot `read`; … products of slot `read` …; read = read + 1
        if step i + s - 1 takes the branch:
            copy it into slot `fill`; fill = fill + 1
        marks = marks * 2 + (1 if it takes the branch)

If a loop stores to arrays, only loads from arrays that do not overlap them are copied.

A tile that the user's loop loads one step ahead and carries is copied too. Its first copy begins before the loop.

Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from louver.analysis.integers import position
from louver.analysis.passages import end_of, is_before, outermost, runs_again
from louver.compile.plan.feeds.behind_products import first_product, load_behind, take_behind
from louver.compile.plan.feeds.copied_loads import (
    addresses,
    unchanged,
)
from louver.compile.plan.feeds.next_copies import begin_next, loop_around
from louver.compile.plan.feeds.products_in_flight import products_in_flight
from louver.compile.plan.feeds.ring_shares import ENOUGH_SLOTS, Peak, Shares, Wish
from louver.compile.plan.feeds.ring_tiles import RingTile, ring_tile
from louver.compile.plan.feeds.steps_ahead import Sources, guarded_mask, made_again, move_up, next_step, only_loads
from louver.compile.plan.feeds.taken_steps import TakenSteps
from louver.compile.plan.register_tiles import MOST_SLOTS
from louver.compile.rewrite.insert import carrying, insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.multiples import apart_of

LEAST_IN_FLIGHT = 4
"""Slots of a ring from which products run on into the next step.

They keep a slot from the copies, which still begin two steps ahead.
"""


def ring_copies(
    module: ModuleOp,
    rooms: Sequence[int],
    peak_of: Callable[[tt.FuncOp], Peak],
    most: int = MOST_SLOTS,
    *,
    in_flight: bool = True,
    deep: bool = False,
) -> None:
    """Rewrites loops in place.

    rooms: bytes of shared memory of a CTA, for the most CTAs on an SM down to one. The first in which each ring gets two slots is
        used.
    peak_of: gives the peak of shared memory that a function needs beside the rings.
    most: the largest number of slots of a ring.
    in_flight: whether products may run on into the next step.
    deep: whether a room for `ENOUGH_CTAS` or more in which each ring gets `ENOUGH_SLOTS` goes first.
    """
    for function in [op for op in module.body.ops if isinstance(op, tt.FuncOp) and op.is_public]:
        apart = apart_of(function)
        shares = Shares(rooms, most, peak_of(function), deep)
        early, late = list[Wish](), list[Wish]()
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op, stores=True)]:
            loads = unchanged([op for op in loop.body.block.ops if isinstance(op, tt.LoadOp)], loop, apart)
            tiles = [found for op in loads if (found := ring_tile(loop, op, apart))]
            if not all(each.first for each in tiles):
                tiles = [each for each in tiles if each.first is None]
            if tiles:
                own = all(each.first is None for each in tiles)
                taken = TakenSteps.of(loop, [each.put.result for each in tiles], apart) if own else None
                around = None if taken else loop_around(loop, [each.load for each in tiles], apart)
                late.append(Wish(loop, tiles, taken, loop))
                early.append(Wish(loop, tiles, taken, around or loop))
        # A ring with copies for the next iteration of the outer loop takes shared memory during the whole outer loop.
        counts = zip(early, late, shares.slots(early), shares.slots(late), strict=True)
        wishes = [first if count >= min(ENOUGH_SLOTS, other) else then for first, then, count, other in counts]
        for wish, count in zip(wishes, shares.slots(wishes), strict=True):
            if count:
                # The rings of earlier loops may have replaced the outer loop.
                around = None if wish.home is wish.loop else cast(scf.ForOp, wish.loop.parent_op())
                copied = {each.put.result for each in wish.tiles}
                # Products do not run on into a branch.
                runs_on = in_flight and count >= LEAST_IN_FLIGHT and not any(each.is_tested for each in wish.tiles)
                dots = products_in_flight(wish.loop, copied) if runs_on else []
                for dot in dots:
                    dot.properties["inFlight"] = UnitAttr()
                _Ring(wish.loop, wish.tiles, wish.taken, count, 2 if dots else 1, around).make()
        remove_dead(function)


@dataclass(frozen=True, slots=True)
class _Ring:
    """A ring of slots. The tiles of a loop are copied to it `slots - kept` steps ahead.

    kept: slots that products may read while the copies of a step begin: those of this step, and of the step before if
    its products run on.
    taken: the steps that read the tiles; None if all do. Only these are copied, waited for, and have slots.
    around: the outer loop, if the first copies of its next iteration begin right after this loop; None if they begin
    before it.
    """

    loop: scf.ForOp
    tiles: Sequence[RingTile]
    taken: TakenSteps | None
    slots: int
    kept: int
    around: scf.ForOp | None

    @property
    def like(self) -> Operation:
        return self.tiles[0].load

    @property
    def boxes(self) -> bool:
        """Whether any tile is a box."""
        return any(each.load.box is not None for each in self.tiles)

    @property
    def gathers(self) -> bool:
        """Whether threads copy any tile."""
        return any(each.load.box is None for each in self.tiles)

    def make(self) -> None:
        """Rewrite the loop."""
        loop, slots = self.loop, self.slots
        home = self.around or loop
        for load in (each.load for each in self.tiles):
            if load.box is not None:
                first = load.place[-2] if is_before(load.place[-2], home) else integer(home, 0)
                fitted = insert(home, tt.FitBoxOp(load.box, first), load).results[0]
                load.operands[position(load.box, load.operands)] = fitted
        block, end = loop.body.block, end_of(loop.body.block)
        needed = [value for each in self.tiles for value in addresses(each.load)]
        needed += [] if self.taken is None else [self.taken.condition]
        sources = Sources(loop, needed, repeated=True)
        number = block.args[0]
        memory = [insert(home, tt.LocalAllocOp(each.memory, slots), each.put).results[0] for each in self.tiles]
        if self.boxes:
            boxes = [(each.load.box, slots) for each, slots in zip(self.tiles, memory, strict=True) if each.load.box]
            insert(home, tt.ClearSlotsOp([box for box, _ in boxes], [slots for _, slots in boxes]), self.like)
        barriers = insert(outermost(loop), tt.InitBarriersOp(slots), self.like).results[0] if self.boxes else None

        if self.taken is not None:
            # The first copies may begin in the loop, where threads meet only in steps that are taken.
            insert(loop, tt.MeetOp(), self.like)
        known, goes_on, further, begun = self._first_steps(sources, memory, barriers)
        # The copy of a later step needs the loop's values of that step, so the loop carries them in addition.
        shadows = [number, *sources.carried]
        given = [*(known[each] for each in shadows), goes_on]
        # The slot to read, those that are read until the copy begins, and the one to fill.
        given += [*(integer(loop, -each % slots) for each in range(self.kept)), *further]
        given += [] if barriers is None else [integer(loop, 0)]
        ahead = [block.insert_arg(each.type, len(block.args)) for each in given]
        following = dict[SSAValue, SSAValue](zip(shadows, ahead, strict=False))
        goes_on, *rest = ahead[len(shadows) :]
        held, phase = rest[: self.kept + 1], rest[len(rest) - (barriers is not None) :]
        marks = rest[len(held) : len(rest) - len(phase)]
        fixed = set(sources.made) - sources.varying
        move_up(block, fixed)
        first = next(op for op in block.ops if op not in fixed)
        step = _Step(sources, memory, barriers, following, goes_on, held, marks, phase)
        read, turns, goes_on = (
            self._every_step(first, step) if self.taken is None else self._some_steps(first, self.taken, step)
        )
        for each, tile in zip(self.tiles, read.tiles, strict=True):
            tile.name_hint = each.load.result.name_hint
            if each.first is not None:
                index = position(each.load.result, end.operands)
                end.operands[index] = block.args[index + 1]
            each.read(tile)
        ends = [*end.operands, *(following[each] for each in shadows), goes_on, *turns]
        new = carrying(loop, [*loop.iter_args, *given], ends)
        if self.gathers:
            insert(loop, tt.AsyncWaitOp(0), self.like)
        if barriers is not None and runs_again(loop):
            insert(loop, tt.EvenBarriersOp(barriers, new.results[-len(rest)], new.results[-1], slots), loop)
        if self.around is not None:
            begin_next(self.around, loop, begun)
        Rewriter.replace_op(loop, [], new.results[: len(loop.results)])

    def _every_step(self, first: Operation, step: _Step) -> tuple[_Slot, list[SSAValue], SSAValue]:
        """Wait for the copies of a step, and begin those of a later one.

        first: the first operation of the body that changes.

        Returns the slot to read, the slots and the phase of the next step, and whether the loop has a step after the later one.
        """
        block, end = self.loop.body.block, end_of(self.loop.body.block)
        loads = [each.load for each in self.tiles]
        current = self._wait(first, step)
        turns = self._turned(first, step.held, step.phase)
        # There must be no branch between products and the wait for them.
        dot = None if any(each.is_tested for each in self.tiles) else first_product(block)
        here = made_again(first if dot is None else dot, step.changing, step.following, step.goes_on)
        if dot is not None:
            first = dot.next_op or end
            if only_loads(self.loop):
                load_behind(block, first)
            take_behind(dot)
        into = self._slot(first, step.memory, step.barriers, step.held[-1])
        self._begin(first, into, loads, here, step.goes_on, inside=True, free=dot is not None)
        self._commit(first)
        return current, turns, next_step(first, self.loop, step.sources, step.following, here, step.goes_on)

    def _some_steps(self, first: Operation, taken: TakenSteps, step: _Step) -> tuple[_Slot, list[SSAValue], SSAValue]:
        """As `_every_step`, where only some steps read the tiles.

        The slot to fill is free: threads have synchronized in the last step that was taken. If that is not this step, fewer slots than
        all but one are filled.
        """
        (read, fill), (marks,), phase, like = step.held, step.marks, step.phase, self.like
        now = taken.decide(first, marks, self.slots - self.kept)
        current = self._wait(taken.enter(), step)
        next_read, _, *next_phase = self._turned(first, step.held, phase)
        pairs = zip((next_read, *next_phase), (read, *phase), strict=True)
        next_read, *next_phase = (insert(first, SelectOp(now, new, old), like).results[0] for new, old in pairs)
        # What decides about later steps is loaded before the wait of this one.
        here, goes = taken.decided(first, self.loop, step.changing, step.following, step.goes_on)
        goes_on = next_step(first, self.loop, step.sources, step.following, here, step.goes_on)
        behind = taken.branch.next_op
        assert behind is not None
        self._copy_if(behind, taken, step, goes, step.changing, here, inside=True)
        next_fill = insert(first, SelectOp(goes, self._turned(first, [fill], [])[0], fill), like).results[0]
        return current, [next_read, next_fill, taken.marked(first, marks, goes), *next_phase], goes_on

    def _copy_if(
        self,
        before: Operation,
        taken: TakenSteps,
        step: _Step,
        goes: SSAValue,
        made: Sequence[Operation],
        known: Mapping[SSAValue, SSAValue],
        *,
        inside: bool = False,
    ) -> None:
        """Begin the copies of a step in a branch with the condition `goes`: whether the step exists and is taken.

        made: the operations that compute what the copies need, as far as `known` has it not.
        """
        region = Block([scf.YieldOp()])
        insert(before, scf.IfOp(goes, [], Region(region)), self.like)
        end = end_of(region)
        # The condition is known here, so the assembler drops what depends on it.
        yes = integer(end, 1, goes.type)
        known = {**known, taken.condition: yes if taken.holds else integer(end, 0, goes.type)}
        known = made_again(end, [op for op in made if op.results[0] not in known], known, yes)
        into = self._slot(end, step.memory, step.barriers, step.held[-1])
        self._begin(end, into, [each.load for each in self.tiles], known, yes, inside=inside, free=inside)
        self._commit(before)

    def _wait(self, before: Operation, step: _Step) -> _Slot:
        """Wait for the copies to the slot that this step reads."""
        slot = self._slot(before, step.memory, step.barriers, step.held[0])
        if self.gathers:
            insert(before, tt.AsyncWaitOp(self.slots - self.kept - 1), self.like)
        if slot.barrier is not None:
            insert(before, tt.WaitBarrierOp(slot.barrier, step.phase[0]), self.like)
        return slot

    def _commit(self, before: Operation) -> None:
        """Commit the copies of threads. Steps without any have a group too, so that steps can be waited for by their number."""
        if self.gathers:
            insert(before, tt.AsyncCommitOp(), self.like)

    def _first_steps(
        self, sources: Sources, memory: Sequence[SSAValue], barriers: SSAValue | None
    ) -> tuple[dict[SSAValue, SSAValue], SSAValue, list[SSAValue], list[tt.BoxCopiesOp]]:
        """Copy the first `slots - kept` steps before the loop, or fewer if the loop has fewer.

        Returns the values of the body in the next step, whether that step exists, the slot to fill in the loop's first step with the
        marks, and the copies of boxes.
        """
        loop, block = self.loop, self.loop.body.block
        begun: list[tt.BoxCopiesOp] = []
        known = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
        goes_on = insert(loop, CmpiOp(loop.lb, loop.ub, "slt"), self.like).results[0]
        loads = [each.load for each in self.tiles]
        firsts = [each.first for each in self.tiles if each.first is not None]
        filled = integer(loop, -self.kept % self.slots if self.taken is None else 0)
        marks = [] if self.taken is None else [integer(loop, 0)]
        for slot in range(self.slots - self.kept):
            if self.taken is not None:
                here, goes = self.taken.decided(loop, self.loop, sources.made, known, goes_on)
                step = _Step(sources, memory, barriers, known, goes_on, [filled], [], [])
                self._copy_if(loop, self.taken, step, goes, sources.made, here)
                goes_on = next_step(loop, loop, sources, known, here, goes_on)
                filled = insert(loop, arith.AddiOp(filled, self.taken.number(loop, goes)), self.like).results[0]
                marks = [self.taken.marked(loop, marks[0], goes)]
                continue
            into = self._slot(loop, memory, barriers, integer(loop, slot))
            if firsts and slot == 0:
                begun += self._begin(loop, into, firsts, {}, goes_on)
                self._commit(loop)
                continue
            here = made_again(loop, sources.made, known, goes_on)
            begun += self._begin(loop, into, loads, here, goes_on)
            self._commit(loop)
            goes_on = next_step(loop, loop, sources, known, here, goes_on)
        return known, goes_on, [filled, *marks], begun

    def _slot(self, before: Operation, memory: Sequence[SSAValue], barriers: SSAValue | None, index: SSAValue) -> _Slot:
        like = self.like
        barrier = None
        if barriers is not None:
            size = integer(before, BARRIER_BYTES)
            offset = insert(before, arith.MuliOp(index, size), like).results[0]
            barrier = insert(before, arith.AddiOp(barriers, offset), like).results[0]
        return _Slot(tuple(insert(before, tt.SlotOp(each, index), like).results[0] for each in memory), barrier)

    def _begin(
        self,
        before: Operation,
        slot: _Slot,
        loads: Sequence[tt.LoadOp],
        known: Mapping[SSAValue, SSAValue],
        goes_on: SSAValue,
        *,
        inside: bool = False,
        free: bool = False,
    ) -> list[tt.BoxCopiesOp]:
        """Begin the copies of a step for these loads, under the condition `goes_on`. Returns the copies of boxes.

        known: maps values of the loop's body to values there.
        inside: whether the copies are in the loop.
        """
        begun: list[tt.BoxCopiesOp] = []
        boxes = [
            (load.box, load.place, tile) for load, tile in zip(loads, slot.tiles, strict=True) if load.box is not None
        ]
        if slot.barrier is not None:
            places = [known.get(index, index) for _, place, _ in boxes for index in place]
            descriptors, tiles = [box for box, _, _ in boxes], [tile for _, _, tile in boxes]
            copies = tt.BoxCopiesOp(descriptors, places, tiles, slot.barrier, goes_on, free=free, apart=inside)
            begun.append(copies)
            insert(before, begun[0], self.like)
        for each, load, tile in zip(self.tiles, loads, slot.tiles, strict=True):
            if load.box is None:
                mask = guarded_mask(before, load, known, goes_on)
                pointers = known.get(load.ptr, load.ptr)
                sizes = {"chunk": each.chunk, "sure": each.sure}
                copy = tt.AsyncCopyOp(pointers, tile, mask, each.elsewhere, **sizes, free=free)
                insert(before, copy, each.load).results[0].name_hint = each.load.result.name_hint
        return begun

    def _turned(self, before: Operation, held: Sequence[SSAValue], phase: Sequence[SSAValue]) -> list[SSAValue]:
        """The slots of the next step, from the one to read to the one to fill, and the phase of the slot to read."""
        like, one, (read, *_) = self.like, integer(before, 1), held
        next_one = insert(before, arith.AddiOp(read, one), like).results[0]
        wraps = insert(before, CmpiOp(next_one, integer(before, self.slots), "eq"), like).results[0]
        found = [insert(before, SelectOp(wraps, integer(before, 0), next_one), like).results[0], *held[:-1]]
        for each in phase:
            other = insert(before, arith.XOrIOp(each, one), like).results[0]
            found.append(insert(before, SelectOp(wraps, other, each), like).results[0])
        return found


@dataclass(frozen=True, slots=True)
class _Step:
    """The values of a step of the loop.

    following: maps values of the body to their values in the step whose copies begin. goes_on: whether the loop has it.
    held: the slot to read, those that are read until the copies begin, and the one to fill.
    marks: which steps are taken (`TakenSteps`); empty if all are.
    phase: that of the slot to read; empty without boxes.
    """

    sources: Sources
    memory: Sequence[SSAValue]
    barriers: SSAValue | None
    following: dict[SSAValue, SSAValue]
    goes_on: SSAValue
    held: Sequence[SSAValue]
    marks: Sequence[SSAValue]
    phase: Sequence[SSAValue]

    @property
    def changing(self) -> list[Operation]:
        """The operations that compute what differs between steps, in order."""
        return [op for op in self.sources.made if op in self.sources.varying]


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot: the memory of each tile, and the barrier of its boxes; None without boxes."""

    tiles: tuple[SSAValue, ...]
    barrier: SSAValue | None
