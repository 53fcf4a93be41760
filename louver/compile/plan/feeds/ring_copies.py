"""ring-copies: tiles that a loop multiplies as they are loaded are copied to shared memory some steps before, into slots that take turns.

    for i:                                     copy steps 0 … s-2 into slots 0 … s-2
        put load(i) into shared memory         for i, read, fill:
        … products …                   ⟶           wait for the copies of step i, in slot `read`
                                                   copy step i + s - 1 into slot `fill`
                                                   … products of slot `read` …
                                                   fill, read = read, read + 1 (0 behind the last slot)

Boxes (describe-boxes) are copied by one thread: they arrive at the slot's barrier, which waits for their bytes, in phases 0 and 1 in turn.
Other tiles are copied by all threads, in groups that each thread waits for. Threads meet once a step, between the wait and the copy:
then all products that read the free slot have been done.
Where a loop stores, only arrays are copied from that share no memory with those it stores to.
A tile that the user's loop loads a step ahead and carries goes the same way: its first one is copied before the loop.
Valid tile IR with encodings in (after assign-encodings), valid tile IR out.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from louver.analysis.effects import has_no_effect
from louver.analysis.integers import position
from louver.compile.plan.encode.unit import by_warpgroups
from louver.compile.plan.feeds.chunks import chunk_of
from louver.compile.plan.feeds.copied_loads import addresses, array_of, gives_zeros, may_be_copied, only_user
from louver.compile.plan.feeds.staged_operands import loaded_along
from louver.compile.plan.feeds.steps_ahead import Feeds, Sources, computed_again, guarded_mask, move_up, only_loads
from louver.compile.rewrite.insert import carrying, insert, integer
from louver.compile.rewrite.remove_dead import remove_dead
from louver.ir.comparisons import CmpiOp, SelectOp
from louver.ir.tile import (
    AsyncCommitOp,
    AsyncCopyOp,
    AsyncWaitOp,
    AtomicRMWOp,
    BoxCopiesOp,
    ConvertLayoutOp,
    DotOp,
    FuncOp,
    InitBarriersOp,
    InvalBarriersOp,
    LoadOp,
    LocalAllocOp,
    SharedAttr,
    SlotOp,
    StoreOp,
    TransOp,
    WaitBarrierOp,
)
from louver.ir.tile.boxes import BARRIER_BYTES
from louver.ir.tile.multiples import apart_of
from louver.ir.tile.staging import in_shared, tile_of
from louver.ir.tile.types import AnyTensor, register_encoding, tensor_of

MOST_SLOTS = 4
"""Slots of a ring, at most: three steps of copies are under way while one is multiplied."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """A tile on its way to shared memory. load: brings it. turn: transposes it, where it is. put: its conversion.

    elsewhere: an address of legal codes, for metadata. chunk: bytes that a thread copies at once, of tiles that are no boxes. first: the
    load of the first step's tile, where the loop loads the next step's.
    """

    load: LoadOp
    turn: TransOp | None
    put: ConvertLayoutOp
    elsewhere: SSAValue | None
    chunk: int
    first: LoadOp | None

    @property
    def memory(self) -> AnyTensor:
        """The tile in shared memory as it is loaded: a transpose has its dimensions the other way around."""
        put = tensor_of(self.put.result)
        encoding = register_encoding(put)
        assert isinstance(encoding, SharedAttr)
        return put if self.turn is None else TensorType(put.element_type, put.get_shape()[::-1], encoding.turned())


def ring_copies(module: ModuleOp, rooms: Sequence[int], most: int = MOST_SLOTS, feeds: Feeds = "any") -> None:
    """In place; the module is verified after it.

    rooms: bytes of shared memory for the slots of a loop: the first that has room for two is taken. most: slots of a ring.
    """
    for function in [op for op in module.body.ops if isinstance(op, FuncOp) and op.is_public]:
        apart = apart_of(function)
        for loop in [op for op in function.body.walk() if isinstance(op, scf.ForOp) and only_loads(op, stores=True)]:
            loads = [op for op in loop.body.block.ops if isinstance(op, LoadOp) and _is_unchanged(op, loop, apart)]
            tiles = [found for op in loads if (found := _tile(loop, op, feeds))]
            if not tiles:
                continue
            if not all(each.first for each in tiles):
                tiles = [each for each in tiles if each.first is None]
            size = BARRIER_BYTES + sum(tile_of(each.put.result).bytes for each in tiles)
            taken = sum(
                op.slots.value.data * tile_of(op.result).bytes
                for op in function.body.walk()
                if isinstance(op, LocalAllocOp)
            )
            slots = next(((room - taken) // size for room in rooms if room - taken >= 2 * size), 0)
            if slots:
                _Ring(loop, tiles, min(most, slots)).make()
        remove_dead(function)
    module.verify()


def goes_to_ring(loop: scf.ForOp, load: LoadOp, feeds: Feeds) -> bool:
    """Whether this pass will copy what a load brings, where there is room."""
    return _tile(loop, load, feeds) is not None


def _tile(loop: scf.ForOp, load: LoadOp, feeds: Feeds) -> _Tile | None:
    """A load of a loop whose tile nothing but shared memory takes; zeros, or any legal codes, stand where it loads nothing."""
    tile, first = load.result, None
    if isinstance(end := only_user(tile), scf.YieldOp):
        index = position(tile, end.operands)
        tile, first = loop.body.block.args[index + 1], loop.iter_args[index].owner
        if not isinstance(first, LoadOp) or loop.results[index].first_use or not _goes_into(first, loop):
            return None
    user = only_user(tile)
    turn = user if isinstance(user, TransOp) else None
    put = user if turn is None else only_user(turn.result)
    if not isinstance(put, ConvertLayoutOp) or not in_shared(put.result):
        return None
    along = tile_of(put.result).fast
    along = along if turn is None else 1 - along
    chunk = 0 if load.box is not None else chunk_of(load, along)
    both = [load] if first is None else [load, first]
    if any((each.box is None) != (load.box is None) or not may_be_copied(each, feeds) for each in both):
        return None
    if load.box is not None and any(loaded_along(each.result) != along for each in both):
        return None
    if load.box is None and (not chunk or any(chunk_of(each, along) != chunk for each in both)):
        return None
    if not Sources(loop, addresses(load), repeated=True).known_ahead:
        return None
    elsewhere = next((array_of(each.ptr) for each in both if not gives_zeros(each)), None)
    return _Tile(load, turn, put, elsewhere, chunk, first)


def _is_unchanged(load: LoadOp, loop: scf.ForOp, apart: Container[SSAValue]) -> bool:
    """Whether a loop stores to no memory that a load may read. apart: arrays that share no memory with others."""
    array = array_of(load.ptr)
    stored = [array_of(op.ptr) for op in loop.body.block.ops if isinstance(op, StoreOp | AtomicRMWOp)]
    return all(
        array is not None and other is not None and array is not other and (array in apart or other in apart)
        for other in stored
    )


def _goes_into(load: LoadOp, loop: scf.ForOp) -> bool:
    """Whether a load may be made right before a loop instead: nothing in between has another effect."""
    between: Operation | None = load.next_op if load.parent is loop.parent else None
    while between is not None and between is not loop:
        if not isinstance(between, LoadOp) and not has_no_effect(between):
            return False
        between = between.next_op
    return between is loop


@dataclass(frozen=True, slots=True)
class _Ring:
    """Slots for tiles of a loop, which are copied `slots - 1` steps ahead of it. like: an operation with their source line."""

    loop: scf.ForOp
    tiles: Sequence[_Tile]
    slots: int

    @property
    def like(self) -> Operation:
        return self.tiles[0].load

    @property
    def boxes(self) -> bool:
        """Whether any tile is a box."""
        return any(each.load.box is not None for each in self.tiles)

    @property
    def gathers(self) -> bool:
        """Whether any tile comes another way."""
        return any(each.load.box is None for each in self.tiles)

    def make(self) -> None:
        """Rewrite the loop."""
        loop, slots = self.loop, self.slots
        block, end = loop.body.block, cast(scf.YieldOp, loop.body.block.last_op)
        sources = Sources(loop, [value for each in self.tiles for value in addresses(each.load)], repeated=True)
        number = block.args[0]
        memory = [insert(loop, LocalAllocOp(each.memory, slots), each.put).results[0] for each in self.tiles]
        barriers = insert(loop, InitBarriersOp(slots), self.like).results[0] if self.boxes else None

        # Before the loop: the first steps, as far as there are so many.
        known = dict[SSAValue, SSAValue](zip(block.args, (loop.lb, *loop.iter_args), strict=True))
        goes_on = insert(loop, CmpiOp(loop.lb, loop.ub, "slt"), self.like).results[0]
        loads = [each.load for each in self.tiles]
        firsts = [each.first for each in self.tiles if each.first is not None]
        for slot in range(slots - 1):
            into = self._slot(loop, memory, barriers, integer(loop, slot))
            if firsts and slot == 0:
                self._begin(loop, into, firsts, [], {}, goes_on)
                continue
            self._begin(loop, into, loads, sources.made, dict(known), goes_on)
            goes_on = _step(loop, loop, sources, known, number, goes_on)

        # In the loop: the step that is so many further on, from values of its own that are as far ahead.
        shadows = [number, *sources.carried]
        given = [*(known[each] for each in shadows), goes_on]
        given += [integer(loop, each) for each in (0, slots - 1, *([] if barriers is None else [0]))]
        ahead = [block.insert_arg(each.type, len(block.args)) for each in given]
        following = dict[SSAValue, SSAValue](zip(shadows, ahead, strict=False))
        goes_on, read, fill, *phase = ahead[len(shadows) :]
        fixed = set(sources.made) - sources.varying
        move_up(block, fixed)
        first = next(op for op in block.ops if op not in fixed)
        current = self._slot(first, memory, barriers, read)
        if self.gathers:
            insert(first, AsyncWaitOp(slots - 2), self.like)
        if current.barrier is not None:
            insert(first, WaitBarrierOp(current.barrier, phase[0]), self.like)
        turns = self._turned(first, read, phase)
        dot = _first_product(block)
        if dot is not None:
            first = dot.next_op or end
            if only_loads(loop):
                _load_behind(block, first)
            _take_behind(dot)
        into = self._slot(first, memory, barriers, fill)
        made = [op for op in sources.made if op in sources.varying]
        self._begin(first, into, loads, made, dict(following), goes_on, free=dot is not None)
        goes_on = _step(first, loop, sources, following, number, goes_on)
        for each, tile in zip(self.tiles, current.tiles, strict=True):
            tile.name_hint = each.load.result.name_hint
            if each.first is not None:
                index = position(each.load.result, end.operands)
                end.operands[index] = block.args[index + 1]
            _read(each, tile)
        ends = [*end.operands, *(following[each] for each in shadows), goes_on, *turns]
        new = carrying(loop, [*loop.iter_args, *given], ends)
        if self.gathers:
            insert(loop, AsyncWaitOp(0), self.like)
        if barriers is not None:
            insert(loop, InvalBarriersOp(barriers, slots), loop)
        for before, after in zip(loop.results, new.results, strict=False):
            after.name_hint = before.name_hint
            before.replace_all_uses_with(after)
        Rewriter.erase_op(loop)

    def _slot(self, before: Operation, memory: Sequence[SSAValue], barriers: SSAValue | None, index: SSAValue) -> _Slot:
        """The slot of that number."""
        like = self.like
        barrier = None
        if barriers is not None:
            size = integer(before, BARRIER_BYTES)
            offset = insert(before, arith.MuliOp(index, size), like).results[0]
            barrier = insert(before, arith.AddiOp(barriers, offset), like).results[0]
        return _Slot(tuple(insert(before, SlotOp(each, index), like).results[0] for each in memory), barrier)

    def _begin(
        self,
        before: Operation,
        slot: _Slot,
        loads: Sequence[LoadOp],
        made: Sequence[Operation],
        known: dict[SSAValue, SSAValue],
        goes_on: SSAValue,
        *,
        free: bool = False,
    ) -> None:
        """Begin the copies of a step, by these loads, where `goes_on` holds. known: what stands there for values of the loop's body."""
        computed_again(before, made, known, goes_on)
        boxes = [
            (load.box, load.place, tile) for load, tile in zip(loads, slot.tiles, strict=True) if load.box is not None
        ]
        if slot.barrier is not None:
            places = [known.get(index, index) for _, place, _ in boxes for index in place]
            descriptors, tiles = [box for box, _, _ in boxes], [tile for _, _, tile in boxes]
            insert(before, BoxCopiesOp(descriptors, places, tiles, slot.barrier, goes_on, free=free), self.like)
        for each, load, tile in zip(self.tiles, loads, slot.tiles, strict=True):
            if load.box is None:
                mask = guarded_mask(before, load, known, goes_on)
                pointers = known.get(load.ptr, load.ptr)
                copy = AsyncCopyOp(pointers, tile, mask, each.elsewhere, chunk=each.chunk, free=free)
                insert(before, copy, each.load).results[0].name_hint = each.load.result.name_hint
        if self.gathers:
            insert(before, AsyncCommitOp(), self.like)

    def _turned(self, before: Operation, read: SSAValue, phase: Sequence[SSAValue]) -> list[SSAValue]:
        """The numbers of the slots to read and to fill in the next step, and the phase of that to read."""
        like, one = self.like, integer(before, 1)
        next_one = insert(before, arith.AddiOp(read, one), like).results[0]
        wraps = insert(before, CmpiOp(next_one, integer(before, self.slots), "eq"), like).results[0]
        found = [insert(before, SelectOp(wraps, integer(before, 0), next_one), like).results[0], read]
        for each in phase:
            other = insert(before, arith.XOrIOp(each, one), like).results[0]
            found.append(insert(before, SelectOp(wraps, other, each), like).results[0])
        return found


@dataclass(frozen=True, slots=True)
class _Slot:
    """A slot: each tile's memory in it, and the barrier of its boxes, if there are such."""

    tiles: tuple[SSAValue, ...]
    barrier: SSAValue | None


def _load_behind(block: Block, place: Operation) -> None:
    """Move what is loaded for the next step to a place behind the products: the fence before them waits for all loads."""
    for op in list(block.ops):
        if op is place:
            return
        if isinstance(op, LoadOp) and isinstance(only_user(op.result), scf.YieldOp):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))


def _take_behind(dot: DotOp) -> None:
    """Move what is not needed before the products, tiles that are taken from shared memory too, behind them."""
    behind: set[Operation] = set()
    place, op = dot.next_op, dot.prev_op
    assert place is not None
    while op is not None:
        before, users = op.prev_op, [use.operation for result in op.results for use in result.uses]
        if has_no_effect(op) and users and all(user in behind or _follows(user, dot) for user in users):
            op.detach()
            Rewriter.insert_op(op, InsertPoint.before(place))
            behind.add(op)
            place = op
        op = before


def _follows(op: Operation, other: Operation) -> bool:
    """Whether an operation of the same block comes behind another one."""
    return op.parent is other.parent and not op.is_before_in_block(other) and op is not other


def _first_product(block: Block) -> DotOp | None:
    """The first dot, if warpgroups do it: the copies come behind it, since threads meet before it."""
    dot = next((op for op in block.ops if isinstance(op, DotOp)), None)
    return dot if dot is not None and by_warpgroups(dot) else None


def _step(
    before: Operation,
    loop: scf.ForOp,
    sources: Sources,
    known: dict[SSAValue, SSAValue],
    number: SSAValue,
    goes_on: SSAValue,
) -> SSAValue:
    """Move `known` on by one iteration; returns whether there is that one."""
    block, end = loop.body.block, cast(scf.YieldOp, loop.body.block.last_op)
    like = sources.made[-1] if sources.made else end
    # What is left does not wrap while there is a step: it is 1 at least and, read without a sign, fits its bits.
    left = insert(before, arith.SubiOp(loop.ub, known[number]), like).results[0]
    more = insert(before, CmpiOp(loop.step, left, "ult"), like).results[0]
    again = insert(before, arith.AndIOp(goes_on, more), like).results[0]
    inner = dict(known)
    computed_again(before, sources.stepped, inner, None)
    for each in sources.carried:
        value = end.operands[position(each, block.args) - 1]
        known[each] = inner.get(value, value)
    known[number] = insert(before, arith.AddiOp(known[number], loop.step), like).results[0]
    return again


def _read(tile: _Tile, slot: SSAValue) -> None:
    """Products take the tile from a slot."""
    if tile.turn is None:
        Rewriter.replace_op(tile.put, [], [slot])
    else:
        properties = dict(tile.turn.properties)
        turned = TransOp.create(operands=[slot], result_types=[tile.put.result.type], properties=properties)
        Rewriter.replace_op(tile.put, [], [insert(tile.put, turned, tile.turn).results[0]])
        Rewriter.erase_op(tile.turn)
    Rewriter.erase_op(tile.load)
