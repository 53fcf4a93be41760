"""Lists the actions of a role, tile by tile and step by step, as events. An event that breaks a rule is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from louver.ir.sched import ops, staged
from louver.ir.sched.gathered import CopyBlocksOp, GatherOp, LoadRowsOp, OpenRowsOp, PointRowsOp, ProxyFenceOp, TurnOp
from louver.ir.sched.types import MapType
from louver.isa.metadata import WORDS, columns_per_load


@dataclass(frozen=True, slots=True)
class Action:
    """The effect of an operation, each time that it runs.

    kind: the name of the operation in its dialect; a name for each effect of one that has several.
    barriers: the barriers at which it waits or arrives.
    number: the lag of a release, the groups that a wait for products leaves in flight, the part that is turned, or the
    bytes that are sent.
    copy: the copy of a load.
    reads: the operands of products.
    open: whether it accesses memory that grids before a dependent launch may use.
    """

    kind: str
    op: Operation
    role: str
    barriers: str = ""
    number: int = 0
    copy: Copy | None = None
    reads: Reads | None = None
    open: bool = False


@dataclass(slots=True)
class Event:
    """An action at its time.

    Events do not change. A kernel has about a thousand, and objects of a frozen class take three times as long to make.

    step: the step in the tile.
    position: steps that the role has advanced over all tiles. It gives the current stage.
    fill: the registers of a load to registers.
    """

    action: Action
    tile: int
    step: int
    position: int
    fill: Fill | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy to a stage.

    offset, bytes: place and size in the stage. bytes: None for the whole stage, which threads copy.
    share: bytes from one CTA's share of a multicast to the next; None without a multicast.
    """

    ring: str
    offset: int
    bytes: int | None
    share: int | None


@dataclass(frozen=True, slots=True)
class Reads:
    """The operands that products read.

    rings: rings of operands.
    register_set: the metadata set; None if products read none.
    words: metadata words.
    fresh: for each product, in order, its block, and whether it ignores the old values of the accumulators.
    """

    rings: tuple[str, ...]
    register_set: int | None
    words: frozenset[int]
    fresh: tuple[tuple[int, bool], ...] = ()


Registers: TypeAlias = int | tuple[Literal["lists", "entries", "pointers", "blocks"], int]
"""Registers that are filled together.

They are a metadata set, or for gathered rows: lists of a tile, a set of entries, pointers, or the blocks of a part.
"""


@dataclass(frozen=True, slots=True)
class Fill:
    """Registers that are loaded.

    steps: the step of `tile` for each word. Empty if nothing is loaded, because the tile does not have the step.
    begin: the first step.
    covers: steps of a load of metadata. `begin` must be a multiple of it.
    """

    number: Registers
    tile: int
    steps: Mapping[int, int]
    begin: int = 0
    covers: int = 1


class Item(NamedTuple):
    """A tile, or a range of one. first: its first step. last: the end of its steps."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """The number of steps."""
        return self.last - self.first


@dataclass(slots=True)
class Walk:
    """Walks the operations of one role. items: the steps of each tile or range. words: metadata words of a step."""

    role: ops.RoleOp
    items: Sequence[Item]
    words: int
    tile: int = 0
    step: int = 0
    position: int = 0
    _known: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    _actions: dict[Operation, Action | None] = field(default_factory=dict[Operation, "Action | None"])

    def events(self) -> Iterator[Event]:
        """All events of the role. Raises ValueError for an operation that the check does not know."""
        for op in self.role.body.block.ops:
            if isinstance(op, ops.TilesOp):
                yield from self._tiles(op)
            else:
                yield from self._one(op)

    def _tiles(self, op: ops.TilesOp) -> Iterator[Event]:
        if op.entries is not None:
            yield Event(Action("walk", op, self.role.sym_name.data, open=True), 0, 0, 0)
        if op.ahead is not None:
            yield from self._ahead(op, 0)
        for tile, item in enumerate(self.items):
            self.tile, self.step = tile, item.first
            self.position = sum(before.length for before in self.items[:tile])
            for inner in op.body.block.ops:
                if isinstance(inner, ops.LoopOp):
                    yield from self._loop(inner)
                elif isinstance(inner, ops.NextTileOp):
                    yield from self._ahead(op, min(tile + 1, len(self.items) - 1))
                else:
                    yield from self._one(inner)

    def _ahead(self, op: ops.TilesOp, tile: int) -> Iterator[Event]:
        if op.ahead is None:
            return
        here = self.tile
        self.tile = tile
        if op.ranges is not None:
            self._known[op.ahead.block.args[-1]] = self.items[tile].first
        for inner in op.ahead.block.ops:
            yield from self._one(inner)
        self.tile = here

    def _loop(self, op: ops.LoopOp) -> Iterator[Event]:
        unroll, last = op.unroll.value.data, self.items[self.tile].last
        if op.partial is not None:
            yield from self._body(op.body.block, min(unroll, last - self.step))
            return
        while op.again is not None and self.step < last:
            yield from self._body(op.body.block, min(unroll, last - self.step))
        while self.step + unroll <= last:
            yield from self._body(op.body.block, unroll)

    def _body(self, block: Block, steps: int) -> Iterator[Event]:
        """The events of the body, until it has advanced `steps` times."""
        end = self.step + steps
        self._known[block.args[0]] = self.step
        for op in block.ops:
            if self.step == end:
                return
            yield from self._one(op)
        if self.step != end:
            # Without this, the walk of a body that never advances would not end.
            text = str(block.parent_op()).splitlines()[0]
            raise ValueError(
                f"a body of a loop advances as many steps as it is unrolled, {steps}, got {steps - end + self.step}: {text}"
            )

    def _one(self, op: Operation) -> Iterator[Event]:
        if isinstance(op, ops.AdvanceOp):
            self.step += 1
            self.position += 1
            return
        if isinstance(op, ops.ReleaseOp) and self.step - self.items[self.tile].first < op.lag.value.data:
            return
        if isinstance(op, ops.CombineOp):
            # A combine reads the same sums as the store inside it, so the same rules hold before and in the region.
            yield Event(Action("combine", op, self.role.sym_name.data, open=True), self.tile, self.step, self.position)
        if isinstance(op, ops.ExchangeOp) and self.tile == len(self.items) - 1:
            # A range is the last item of its CTA.
            yield from self._exchange(op)
        if isinstance(op, staged.OneThreadOp | ops.CombineOp | ops.ExchangeOp):
            # Other threads see the effects of this thread at the wait that follows, which ends only after it.
            for inner in op.body.block.ops:
                yield from self._one(inner)
            return
        if op not in self._actions:
            self._actions[op] = _action(op, self.role.sym_name.data)
        action = self._actions[op]
        if action is not None:
            yield Event(action, self.tile, self.step, self.position, self._fill(op))
        elif isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
            self._known[op.result] = op.value.value.data

    def _exchange(self, op: ops.ExchangeOp) -> Iterator[Event]:
        kernel = self.role.parent_op()
        assert isinstance(kernel, ops.KernelOp)
        role, room, sums = self.role.sym_name.data, op.room.data, op.sums.data
        sent = kernel.exchanged_bytes // self.role.warpgroups.value.data
        for action in (
            Action("combine", op, role),
            Action("offer", op, role, room),
            Action("meet", op, role, room),
            Action("send", op, role, sums, sent),
            Action("meet", op, role, sums),
        ):
            yield Event(action, self.tile, self.step, self.position)

    def _fill(self, op: Operation) -> Fill | None:
        match op:
            case ops.LoadMetadataOp():
                return self._metadata(op)
            case OpenRowsOp():
                return Fill(LISTS, self.tile, {0: 0})
            case LoadRowsOp() | PointRowsOp() | CopyBlocksOp():
                begin = self._value(op.step) + op.ahead.value.data
                return Fill(_register_set(op), self.tile, {0: begin} if begin < self.items[self.tile].last else {})
            case staged.ReadMetadataOp():
                return Fill(op.set.value.data, self.tile, dict.fromkeys(range(self.words), self.step))
            case _:
                return None

    def _metadata(self, op: ops.LoadMetadataOp) -> Fill:
        """A load of the words of a group of steps. Past the last group nothing is loaded."""
        begin = self._value(op.step) + op.ahead.value.data
        steps: dict[int, int] = {}
        if begin < self.items[self.tile].last:
            steps = {word: begin + word // self.words for word in range(WORDS)}
        return Fill(op.set.value.data, self.tile, steps, begin, WORDS // self.words)

    def _value(self, value: SSAValue) -> int:
        if value not in self._known:
            raise ValueError(f"the happens-before check knows steps as constants and loop arguments, got {value}")
        return self._known[value]


def words_a_step(kernel: ops.KernelOp) -> int:
    """Metadata words that a lane needs for a K step of one block of 64 rows; 0 if products read none."""
    if not kernel.unit.sparse:
        return 0
    return kernel.tile.data[2].value.data * WORDS // columns_per_load(kernel.unit.a)


LISTS: Registers = "lists", 0
"""The lists of a tile, and the columns of its rows. They do not depend on the step, so the step is 0."""

POINTERS: Registers = "pointers", 0


def _action(op: Operation, role: str) -> Action | None:
    """The effect of an operation; None for arithmetic, and for products after the first of their group, which
    represents all.
    """
    action = partial(Action, op.name.removeprefix("sched."), op, role)
    match op:
        case OpenRowsOp() | LoadRowsOp() | PointRowsOp() | ProxyFenceOp() | ops.LoadMetadataOp() | ops.WaitGridsOp():
            return action()
        case ops.MmaFenceOp() | ops.MmaCommitOp() | ops.ClearOp() | ops.PromoteOp():
            return action()
        case ops.AcquireOp() | ops.InviteOp() | ops.ExpectOp() | ops.WaitOp():
            return action(op.barriers.data)
        case ops.ReleaseOp():
            return action(op.barriers.data, op.lag.value.data)
        case ops.BulkLoadOp():
            return action(op.barriers.data, copy=_copy(op), open=_map(op).operand.data != "a")
        case GatherOp():
            return action(op.barriers.data, copy=Copy(op.ring.data, 0, None, None), open=True)
        case CopyBlocksOp() | ops.StoreOp() | ops.BulkStoreOp():
            return action(open=True)
        case TurnOp():
            size, part = op.bytes.value.data, op.part.value.data
            copy = Copy(op.ring.data, part * size, size, None)
            return action(op.barriers.data, number=part, copy=copy)
        case staged.CopyMetadataOp():
            return action(op.barriers.data, copy=Copy(op.ring.data, 0, op.bytes.value.data, None))
        case staged.ReadMetadataOp():
            return action(reads=Reads((op.ring.data,), op.set.value.data, frozenset()))
        case ops.MmaOp():
            before = op.prev_op
            again = isinstance(before, ops.MmaOp) and _source(before) == _source(op)
            return None if again else action(reads=_reads(op))
        case ops.FmaOp():
            rings = (op.a.data, op.b.data, *([] if op.picks is None else [op.picks.data]))
            return action(reads=Reads(rings, None, frozenset()))
        case ops.MmaWaitOp():
            return action(number=op.pending.value.data)
        case staged.RowsLeftOp() | staged.BoxColumnOp():
            return None
        case _ if op.name.startswith("sched."):
            raise ValueError(f"the check has no rule for {op.name}: add what it does to louver.compile.check")
        case _:
            return None


def _register_set(op: LoadRowsOp | PointRowsOp | CopyBlocksOp) -> Registers:
    match op:
        case LoadRowsOp():
            return entries_of(op)
        case PointRowsOp():
            return POINTERS
        case CopyBlocksOp():
            return "blocks", op.part.value.data


def entries_of(op: LoadRowsOp | PointRowsOp) -> Registers:
    """The set of entries that an operation loads or reads."""
    return "entries", op.set.value.data


def _map(op: ops.BulkLoadOp) -> MapType:
    if not isinstance(op.map.type, MapType):
        raise TypeError(f"a bulk copy reads through a tensor map, got {op.map.type}")
    return op.map.type


def _copy(op: ops.BulkLoadOp) -> Copy:
    share = None if op.multicast is None else op.multicast.data[2].value.data
    return Copy(op.ring.data, op.offset.value.data, _map(op).box_bytes, share)


def _source(op: ops.MmaOp) -> tuple[object, ...]:
    return (op.a, op.b, op.set)


def _reads(op: ops.MmaOp) -> Reads:
    run = [op]
    following = op.next_op
    while isinstance(following, ops.MmaOp) and _source(following) == _source(op):
        run.append(following)
        following = following.next_op
    words = frozenset(each.word.value.data for each in run if each.word is not None)
    fresh = tuple((each.block.value.data, each.fresh is not None) for each in run)
    return Reads((op.a.data, op.b.data), None if op.set is None else op.set.value.data, words, fresh)


class ProtocolError(ValueError):
    """A kernel that breaks the rules of shared memory, barriers and registers. operation: the text of the operation or instruction."""

    def __init__(self, rule: str, got: str, operation: str) -> None:
        self.operation = operation
        super().__init__(f"{rule}, got {got}: {operation}")


def broken(rule: str, got: str, event: Event) -> ProtocolError:
    """The error for an event that breaks a rule. The caller raises it."""
    text = str(event.action.op).splitlines()[0]
    return ProtocolError(rule, got, f"{text} (role @{event.action.role}, tile {event.tile}, step {event.step})")
