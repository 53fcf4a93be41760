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

If a loop stores to arrays, only loads from arrays that do not overlap them are copied.

A tile that the user's loop loads one step ahead and carries is copied too. Its first copy begins before the loop.

Input and output are valid tile IR with encodings (after assign-encodings).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, TensorType, UnitAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import position
from louver.analysis.passages import end_of
from louver.compile.plan.encode.unit import by_warpgroups
from louver.compile.plan.feeds.chunks import chunk_of
from louver.compile.plan.feeds.copied_loads import (
    addresses,
    array_of,
    gives_zeros,
    is_unchanged,
    known_ahead,
    may_be_copied,
    only_user,
)
from louver.compile.plan.feeds.neighbours import loaded_along
from louver.compile.plan.feeds.next_copies import begin_next, loop_around
from louver.compile.plan.feeds.products_in_flight import products_in_flight
from louver.compile.plan.feeds.steps_ahead import Sources, guarded_mask, made_again, move_up, next_step, only_loads
from louver.compile.plan.register_tiles import MOST_SLOTS
from louver.compile.rewrite.insert import carrying, insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir import tile as tt
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.multiples import apart_of
from louver.ir.tile.staging import in_shared, slot_bytes, tile_of
from louver.ir.tile.types import AnyTensor, register_encoding, tensor_of
from louver.isa.swizzle import BANK_LINE

ENOUGH_SLOTS = 4
"""Slots with which copies arrive in time.

The first copies of a tile begin early only if the ring still gets this number.
"""

ENOUGH_CTAS = 2
"""CTAs on an SM from which copies that arrive in time are worth more than another CTA.

Three CTAs of four slots took 0.81 to 0.95 of the time of four CTAs of three, and 1.19 where few programs have work. Two of four
took 0.80 to 0.96 of three of two (docs/perf-log/64).
"""

LEAST_IN_FLIGHT = 4
"""Slots of a ring from which products run on into the next step.

They keep a slot from the copies, which still begin two steps ahead.
"""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile that is copied to shared memory.

    load: the load that the copy replaces.
    turn: the transpose between load and conversion, if there is one.
    put: the conversion to shared memory.
    elsewhere: for metadata, an address of legal codes that is read in place of masked elements.
    chunk: bytes that a thread copies at once; not for boxes.
    first: the load of the first tile, if the loop loads the tile of the next step.
    """

    load: tt.LoadOp
    turn: tt.TransOp | None
    put: tt.ConvertLayoutOp
    elsewhere: SSAValue | None
    chunk: int
    first: tt.LoadOp | None

    @property
    def memory(self) -> AnyTensor:
        """The type of the tile in shared memory, with the dimensions of the load.

        A transpose after the load swaps them.
        """
        put = tensor_of(self.put.result)
        encoding = register_encoding(put)
        assert isinstance(encoding, tt.SharedAttr)
        return put if self.turn is None else TensorType(put.element_type, put.get_shape()[::-1], encoding.turned())


Peak = Callable[[Operation, Container[SSAValue | Operation]], int]
"""The peak of shared memory in bytes within an operation, without the bytes of some tiles."""


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
        shares = _Shares(rooms, most, peak_of(function), deep)
        early, late = list[_Wish](), list[_Wish]()
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op, stores=True)]:
            loads = [op for op in loop.body.block.ops if isinstance(op, tt.LoadOp) and is_unchanged(op, loop, apart)]
            tiles = [found for op in loads if (found := _tile(loop, op, apart))]
            if not all(each.first for each in tiles):
                tiles = [each for each in tiles if each.first is None]
            if tiles:
                around = loop_around(loop, [each.load for each in tiles], apart)
                late.append(_Wish(loop, tiles, loop))
                early.append(_Wish(loop, tiles, around or loop))
        # A ring with copies for the next iteration of the outer loop takes shared memory during the whole outer loop.
        counts = zip(early, late, shares.slots(early), shares.slots(late), strict=True)
        wishes = [first if count >= min(ENOUGH_SLOTS, other) else then for first, then, count, other in counts]
        for wish, count in zip(wishes, shares.slots(wishes), strict=True):
            if count:
                # The rings of earlier loops may have replaced the outer loop.
                around = None if wish.home is wish.loop else cast(scf.ForOp, wish.loop.parent_op())
                copied = {each.put.result for each in wish.tiles}
                dots = products_in_flight(wish.loop, copied) if in_flight and count >= LEAST_IN_FLIGHT else []
                for dot in dots:
                    dot.properties["inFlight"] = UnitAttr()
                _Ring(wish.loop, wish.tiles, count, 2 if dots else 1, around).make()
        remove_dead(function)


@dataclass(frozen=True, slots=True)
class _Wish:
    """A ring that is planned. Its slots take shared memory while the loop `home` runs."""

    loop: scf.ForOp
    tiles: Sequence[_Tile]
    home: scf.ForOp

    @property
    def bytes(self) -> int:
        """Bytes of a slot."""
        return sum(slot_bytes(each.put.result) for each in self.tiles)


@dataclass(frozen=True, slots=True)
class _Shares:
    """Divides shared memory among the rings of a function. Rings of loops that follow each other use the same memory."""

    rooms: Sequence[int]
    most: int
    peak: Peak
    deep: bool

    def slots(self, wishes: Sequence[_Wish]) -> list[int]:
        """The number of slots of each ring; 0 for a ring that does not get two slots.

        Rings that are live at the same time get equal numbers as far as they fit.
        """
        kept = list[_Wish]()
        for wish in wishes:
            if self._demand([*kept, wish])([2] * (len(kept) + 1)) <= self.rooms[-1]:
                kept.append(wish)
        counts, demand = [2] * len(kept), self._demand(kept)
        room = next(room for room in self.rooms if demand(counts) <= room)
        if self.deep:
            enough = [min(self.most, ENOUGH_SLOTS)] * len(kept)
            many = self.rooms[: max(0, len(self.rooms) - ENOUGH_CTAS + 1)]
            room = next((each for each in many if demand(enough) <= each), room)
        growing = set(range(len(kept)))
        while growing:
            index = min(growing, key=lambda each: (counts[each], each))
            counts[index] += 1
            if counts[index] > self.most or demand(counts) > room:
                counts[index] -= 1
                growing.remove(index)
        found = {wish.loop: count for wish, count in zip(kept, counts, strict=True)}
        return [found.get(wish.loop, 0) for wish in wishes]

    def _demand(self, wishes: Sequence[_Wish]) -> Callable[[Sequence[int]], int]:
        """The bytes that rings need for their numbers of slots, beside everything else in their loops."""
        copied: set[SSAValue | Operation] = {each.put.result for wish in wishes for each in wish.tiles}
        sizes = [wish.bytes for wish in wishes]
        beside = [
            (self.peak(wish.home, copied), [other.home.is_ancestor(wish.home) for other in wishes]) for wish in wishes
        ]

        def demand(counts: Sequence[int]) -> int:
            slots = [count * size for count, size in zip(counts, sizes, strict=True)]
            most = max((peak + sum(itertools.compress(slots, live)) for peak, live in beside), default=0)
            # Barriers stay until the kernel ends.
            return most + BANK_LINE * len(wishes)

        return demand


def goes_to_ring(loop: scf.ForOp, load: tt.LoadOp, apart: Container[SSAValue]) -> bool:
    """Whether this pass copies the tile of a load, if shared memory is left."""
    return is_unchanged(load, loop, apart) and _tile(loop, load, apart) is not None


def _tile(loop: scf.ForOp, load: tt.LoadOp, apart: Container[SSAValue]) -> _Tile | None:
    """The tile of a load, if its only use is the conversion to shared memory, and masked elements are zeros or any
    legal codes.
    """
    tile, first = load.result, None
    if isinstance(end := only_user(tile), scf.YieldOp):
        index = position(tile, end.operands)
        tile, first = loop.body.block.args[index + 1], loop.iter_args[index].owner
        if not isinstance(first, tt.LoadOp) or loop.results[index].first_use or not _goes_into(first, loop):
            return None
    user = only_user(tile)
    turn = user if isinstance(user, tt.TransOp) else None
    put = user if turn is None else only_user(turn.result)
    if not isinstance(put, tt.ConvertLayoutOp) or not in_shared(put.result):
        return None
    along = tile_of(put.result).fast
    along = along if turn is None else 1 - along
    chunk = 0 if load.box is not None else chunk_of(load, along)
    both = [load] if first is None else [load, first]
    if not all(map(may_be_copied, both)) or (load.box is not None and loaded_along(load.result) != along):
        return None
    if first is not None and any(each.box is not None for each in both):
        # No step would wait for the box that the last step copies.
        return None
    if load.box is None and (not chunk or any(chunk_of(each, along) != chunk for each in both)):
        return None
    if not known_ahead(loop, addresses(load), apart, repeated=True):
        return None
    elsewhere = next((array_of(each.ptr) for each in both if not gives_zeros(each)), None)
    return _Tile(load, turn, put, elsewhere, chunk, first)


def _goes_into(load: tt.LoadOp, loop: scf.ForOp) -> bool:
    """Whether a load may move to just before a loop. No operation in between may have an effect other than a load."""
    between: Operation | None = load.next_op if load.parent is loop.parent else None
    while between is not None and between is not loop:
        if not isinstance(between, tt.LoadOp) and not has_no_effect(between):
            return False
        between = between.next_op
    return between is loop


@dataclass(frozen=True, slots=True)
class _Ring:
    """A ring of slots. The tiles of a loop are copied to it `slots - kept` steps ahead.

    kept: slots that products may read while the copies of a step begin: those of this step, and of the step before if
    its products run on.
    around: the outer loop, if the first copies of its next iteration begin right after this loop; None if they begin
    before it.
    """

    loop: scf.ForOp
    tiles: Sequence[_Tile]
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
                first = load.place[-2] if _is_known(load.place[-2], home) else integer(home, 0)
                fitted = insert(home, tt.FitBoxOp(load.box, first), load).results[0]
                load.operands[position(load.box, load.operands)] = fitted
        block, end = loop.body.block, end_of(loop.body.block)
        sources = Sources(loop, [value for each in self.tiles for value in addresses(each.load)], repeated=True)
        number = block.args[0]
        memory = [insert(home, tt.LocalAllocOp(each.memory, slots), each.put).results[0] for each in self.tiles]
        if self.boxes:
            boxes = [(each.load.box, slots) for each, slots in zip(self.tiles, memory, strict=True) if each.load.box]
            insert(home, tt.ClearSlotsOp([box for box, _ in boxes], [slots for _, slots in boxes]), self.like)
        barriers = insert(_outermost(loop), tt.InitBarriersOp(slots), self.like).results[0] if self.boxes else None

        known, goes_on, begun = self._first_steps(sources, memory, barriers)
        # The copy of a later step needs the loop's values of that step, so the loop carries them in addition.
        loads = [each.load for each in self.tiles]
        shadows = [number, *sources.carried]
        given = [*(known[each] for each in shadows), goes_on]
        # The slot to read, those that are read until the copy begins, and the one to fill.
        given += [integer(loop, -each % slots) for each in range(self.kept + 1)]
        given += [] if barriers is None else [integer(loop, 0)]
        ahead = [block.insert_arg(each.type, len(block.args)) for each in given]
        following = dict[SSAValue, SSAValue](zip(shadows, ahead, strict=False))
        goes_on, *rest = ahead[len(shadows) :]
        held, phase = rest[: self.kept + 1], rest[self.kept + 1 :]
        fixed = set(sources.made) - sources.varying
        move_up(block, fixed)
        first = next(op for op in block.ops if op not in fixed)
        current = self._slot(first, memory, barriers, held[0])
        if self.gathers:
            insert(first, tt.AsyncWaitOp(slots - self.kept - 1), self.like)
        if current.barrier is not None:
            insert(first, tt.WaitBarrierOp(current.barrier, phase[0]), self.like)
        turns = self._turned(first, held, phase)
        dot = _first_product(block)
        # There must be no branch between products and the wait for them.
        made = [op for op in sources.made if op in sources.varying]
        here = made_again(first if dot is None else dot, made, following, goes_on)
        if dot is not None:
            first = dot.next_op or end
            if only_loads(loop):
                _load_behind(block, first)
            _take_behind(dot)
        into = self._slot(first, memory, barriers, held[-1])
        self._begin(first, into, loads, here, goes_on, inside=True, free=dot is not None)
        goes_on = next_step(first, loop, sources, following, here, goes_on)
        for each, tile in zip(self.tiles, current.tiles, strict=True):
            tile.name_hint = each.load.result.name_hint
            if each.first is not None:
                index = position(each.load.result, end.operands)
                end.operands[index] = block.args[index + 1]
            _read(each, tile)
        ends = [*end.operands, *(following[each] for each in shadows), goes_on, *turns]
        new = carrying(loop, [*loop.iter_args, *given], ends)
        if self.gathers:
            insert(loop, tt.AsyncWaitOp(0), self.like)
        if barriers is not None and _runs_again(loop):
            read, odd = new.results[-len(rest)], new.results[-1]
            insert(loop, tt.EvenBarriersOp(barriers, read, odd, slots), loop)
        if self.around is not None:
            begin_next(self.around, loop, begun)
        Rewriter.replace_op(loop, [], new.results[: len(loop.results)])

    def _first_steps(
        self, sources: Sources, memory: Sequence[SSAValue], barriers: SSAValue | None
    ) -> tuple[dict[SSAValue, SSAValue], SSAValue, list[tt.BoxCopiesOp]]:
        """Copy the first `slots - kept` steps before the loop, or fewer if the loop has fewer.

        Returns the values of the body in the next step, whether that step exists, and the copies of boxes.
        """
        loop, block = self.loop, self.loop.body.block
        begun: list[tt.BoxCopiesOp] = []
        known = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
        goes_on = insert(loop, CmpiOp(loop.lb, loop.ub, "slt"), self.like).results[0]
        loads = [each.load for each in self.tiles]
        firsts = [each.first for each in self.tiles if each.first is not None]
        for slot in range(self.slots - self.kept):
            into = self._slot(loop, memory, barriers, integer(loop, slot))
            if firsts and slot == 0:
                begun += self._begin(loop, into, firsts, {}, goes_on)
                continue
            here = made_again(loop, sources.made, known, goes_on)
            begun += self._begin(loop, into, loads, here, goes_on)
            goes_on = next_step(loop, loop, sources, known, here, goes_on)
        return known, goes_on, begun

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
                copy = tt.AsyncCopyOp(pointers, tile, mask, each.elsewhere, chunk=each.chunk, free=free)
                insert(before, copy, each.load).results[0].name_hint = each.load.result.name_hint
        if self.gathers:
            insert(before, tt.AsyncCommitOp(), self.like)
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
class _Slot:
    """A slot: the memory of each tile, and the barrier of its boxes; None without boxes."""

    tiles: tuple[SSAValue, ...]
    barrier: SSAValue | None


def _is_known(value: SSAValue, loop: scf.ForOp) -> bool:
    """Whether a value is computed before a loop."""
    owner = value.owner if isinstance(value.owner, Operation) else value.owner.parent_op()
    return owner is not None and not loop.is_ancestor(owner)


def _outermost(op: Operation) -> Operation:
    """The ancestor of an operation in the block of the function."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, tt.FuncOp):
        op, parent = parent, parent.parent_op()
    return op


def _runs_again(op: Operation) -> bool:
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, scf.ForOp | scf.WhileOp):
        parent = parent.parent_op()
    return parent is not None


def _load_behind(block: Block, place: Operation) -> None:
    """Move loads for the next step after the products. The fence before the products would wait for all loads."""
    for op in list(block.ops):
        if op is place:
            return
        if isinstance(op, tt.LoadOp) and isinstance(only_user(op.result), scf.YieldOp):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))


def _take_behind(dot: tt.DotOp) -> None:
    """Move operations that the products do not need after them, also reads of shared memory."""
    behind: set[Operation] = set()
    place, op = dot.next_op, dot.prev_op
    assert place is not None
    while op is not None:
        before, users = op.prev_op, [use.operation for result in op.results for use in result.uses]
        if (
            has_no_effect(op)
            and not isinstance(op, scf.IfOp)
            and users
            and all(user in behind or _follows(user, dot) for user in users)
        ):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))
            behind.add(op)
            place = op
        op = before


def _follows(op: Operation, other: Operation) -> bool:
    """Whether an operation comes after another one in the same block."""
    return op.parent is other.parent and not op.is_before_in_block(other) and op is not other


def _first_product(block: Block) -> tt.DotOp | None:
    """The first dot, if warpgroups multiply it; None otherwise. Threads synchronize before it, so copies may follow it.

    A dot in parts is left out. It waits for most of its products, and copies should not wait.
    """
    dot = next((op for op in block.ops if isinstance(op, tt.DotOp)), None)
    return dot if dot is not None and by_warpgroups(dot) and dot.parts == 1 else None


def _read(tile: _Tile, slot: SSAValue) -> None:
    """Replace the tile by the memory of its slot."""
    if tile.turn is None:
        Rewriter.replace_op(tile.put, [], [slot])
    else:
        properties = dict(tile.turn.properties)
        turned = tt.TransOp.create(operands=[slot], result_types=[tile.put.result.type], properties=properties)
        Rewriter.replace_op(tile.put, [], [insert(tile.put, turned, tile.turn).results[0]])
        Rewriter.erase_op(tile.turn)
    Rewriter.erase_op(tile.load)
