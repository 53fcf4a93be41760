"""The state of each warpgroup in the check (clock, products in flight, registers), and the effect of events on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from louver.compile.check.events import LISTS, POINTERS, Event, Reads, Registers, broken, entries_of
from louver.compile.check.stages import GRIDS, Barrier, Clock, Group, Stage, Write, join
from louver.ir.sched import ops
from louver.ir.sched.gathered import PointRowsOp, TurnOp
from louver.isa.targets import WARPGROUP_THREADS, WARPS_PER_WARPGROUP

Fact = TypeVar("Fact")

Shared: TypeAlias = Sequence[Mapping[str, Sequence[Barrier]]]
"""Barriers of each CTA by name, one for each stage."""

Rings: TypeAlias = Sequence[Mapping[str, Sequence[Stage]]]
"""Stages of each CTA by ring."""


@dataclass(slots=True)
class Agent:
    """One warpgroup of a role in one CTA; one thread if the role is single.

    index: its place in clocks.
    proxied: its clock at its last proxy fence.
    turned: the position for which its threads have arrived after their stores.
    cleared: whether the sums of the tile have been cleared.
    partial: blocks whose accumulators hold sums that are not promoted yet.
    """

    index: int
    cta: int
    warps: int
    clock: Clock
    barriers: Shared
    rings: Rings
    open: Group = field(init=False)
    flight: deque[Group] = field(default_factory=deque[Group])
    fenced: bool = False
    proxied: Clock = field(init=False)
    turned: int = -1
    words: dict[Registers, dict[int, tuple[int, int]]] = field(
        default_factory=dict[Registers, "dict[int, tuple[int, int]]"]
    )
    cleared: bool = False
    partial: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.open = Group(self.index)
        self.proxied = [0] * len(self.clock)

    def run(self, event: Event) -> bool:
        """Apply an event. Returns False, and changes nothing, if the agent must wait."""
        self._check_grids(event)
        match event.action.kind:
            case "acquire" | "wait":
                position = event.position // len(self._stages(event, self.cta))
                return self._wait(event, position - (event.action.kind == "acquire"))
            case "mma":
                self._multiply(event)
            case "fma":
                self._multiply_add(event)
            case "release":
                self._release(event)
            case "mma_commit":
                self.flight.append(self.open)
                self.open = Group(self.index)
            case "mma_wait":
                self._retire(event.action.number)
            case "load_metadata" | "read_metadata" | "open_rows":
                self._fill(event)
            case "mma_fence":
                self.fenced = True
            case "clear":
                self.cleared = True
            case "promote":
                self._promote(event)
            case "combine" | "store" | "bulk_store":
                self._read_sums(event)
            case "meet":
                return self._wait(event, 0)
            case "invite" | "offer" | "send":
                self._tell(event)
            case "expect":
                barrier = self._barrier(event, self.cta, event.position)
                barrier.arrive(self.clock, event.position // len(self._stages(event, self.cta)), 1, 0, event)
            case "bulk_load" | "copy_metadata" | "gather" | "load_rows" | "point_rows" | "copy_blocks" | "turn":
                self._bring(event)
            case "proxy_fence":
                self.proxied = list(self.clock)
            case kind:
                assert kind in ("walk", "wait_grids"), kind
        return True

    def _bring(self, event: Event) -> None:
        """Apply an event that brings operands to a stage, or to registers or memory before it."""
        match event.action.kind:
            case "gather":
                self._gather(event)
            case "load_rows":
                self._of_tile(event)
                self._fill(event)
            case "point_rows":
                op = event.action.op
                assert isinstance(op, PointRowsOp)
                self._of_tile(event)
                self._derive(event, entries_of(op), "pointers are made of the entries of their own step")
            case "copy_blocks":
                self._derive(event, POINTERS, "blocks are copied by the pointers of their own step")
            case "turn":
                self._turn(event)
            case _:
                self._load(event)

    def _check_grids(self, event: Event) -> None:
        if event.action.kind == "wait_grids":
            self.clock[GRIDS] = 1
        if event.action.open and not self.clock[GRIDS]:
            raise broken(
                "a dependent kernel touches other memory than the sparse operand only when it knows that the grids before it have ended",
                "no sched.wait_grids, and no wait for a role that has done one, before",
                event,
            )

    def _stages(self, event: Event, cta: int) -> Sequence[Barrier]:
        return self.barriers[cta][event.action.barriers]

    def _barrier(self, event: Event, cta: int, position: int) -> Barrier:
        stages = self._stages(event, cta)
        return stages[position % len(stages)]

    def _wait(self, event: Event, phase: int) -> bool:
        """Wait for a phase. An acquire waits for the round before; in the first round every stage is free."""
        barrier = self.awaited(event)
        if not barrier.passes(phase, self.clock, event):
            return False
        if phase >= 0:
            self.clock = join(self.clock, barrier.ended[phase])
            self.clock[self.index] += 1
            barrier.seen(self.index, self.clock[self.index], phase)
        return True

    def _load(self, event: Event) -> None:
        copy = _given(event.action.copy)
        size = _given(copy.bytes)
        ctas = (self.cta,) if copy.share is None else range(len(self.rings))
        first = copy.offset + (copy.share or 0) * self.cta
        for cta in ctas:
            barrier = self._barrier(event, cta, event.position)
            phase = event.position // len(self._stages(event, cta))
            stages = self.rings[cta][copy.ring]
            write = Write(first, first + size, barrier, phase)
            stages[event.position % len(stages)].write(write, event.position, self.clock, event)
            barrier.arrive(self.clock, phase, 0, size, event)

    def _gather(self, event: Event) -> None:
        """Apply a gather. Each thread arrives when its copies are complete."""
        self._take(event, POINTERS, event.step, "a gather takes the pointers of its own step")
        self._store(event)
        self._arrive(event)

    def _turn(self, event: Event) -> None:
        """Apply a turn. Each thread arrives after its last store."""
        part = event.action.number
        self._take(event, ("blocks", part), event.step, "a turn takes the blocks of its own step")
        if event.position == self.turned:
            raise broken("threads arrive when they have stored all of a stage", f"part {part} behind that", event)
        self._store(event)
        if isinstance(event.action.op, TurnOp) and event.action.op.last is not None:
            self.turned = event.position
            self._arrive(event)

    def _store(self, event: Event) -> None:
        """Apply a write of all threads to the current stage."""
        copy, phase = _given(event.action.copy), event.position // len(self._stages(event, self.cta))
        stages = self.rings[self.cta][copy.ring]
        stage = stages[event.position % len(stages)]
        end = copy.offset + (stage.bytes if copy.bytes is None else copy.bytes)
        barrier = self._barrier(event, self.cta, event.position)
        stage.write(Write(copy.offset, end, barrier, phase, generic=True), event.position, self.clock, event)

    def _arrive(self, event: Event) -> None:
        """Make each thread arrive."""
        phase = event.position // len(self._stages(event, self.cta))
        self._barrier(event, self.cta, event.position).arrive(self.clock, phase, WARPGROUP_THREADS, 0, event)

    def _of_tile(self, event: Event) -> None:
        """Require that rows belong to the open tile, if the tile has the step."""
        if _given(event.fill).steps:
            self._take(event, LISTS, 0, "rows are those of the lists and columns of their own tile")

    def _derive(self, event: Event, source: Registers, rule: str) -> None:
        """Fill registers from other registers, which must hold data of the same step, if the step exists."""
        for step in _given(event.fill).steps.values():
            self._take(event, source, step, rule)
        self._fill(event)

    def _take(self, event: Event, source: Registers, step: int, rule: str) -> None:
        """Raises ProtocolError unless registers hold data of this step."""
        held = self.words.get(source, {}).get(0)
        if held != (event.tile, step):
            text = "none" if held is None else f"those of tile {held[0]}, step {held[1]}"
            raise broken(rule, text, event)

    def _release(self, event: Event) -> None:
        """Release a stage. Each warp arrives in its own CTA."""
        position = event.position - event.action.number
        if any(position in group.positions for group in (*self.flight, self.open)):
            raise broken(
                "a stage is released only after the wait that retires the products which read it",
                "products in flight that read it",
                event,
            )
        phase = position // len(self._stages(event, self.cta))
        self._barrier(event, self.cta, position).arrive(self.clock, phase, self.warps, 0, event)

    def _invite(self, event: Event) -> None:
        """Invite the other CTAs of the cluster to send to the stage."""
        for cta in range(len(self.barriers)):
            if cta != self.cta:
                phase = event.position // len(self._stages(event, cta))
                self._barrier(event, cta, event.position).arrive(self.clock, phase, 1, 0, event)

    def _tell(self, event: Event) -> None:
        """Arrive in other CTAs of the cluster."""
        match event.action.kind:
            case "invite":
                self._invite(event)
            case "offer":
                self._peer(event).arrive(self.clock, 0, self.warps, 0, event)
            case _:
                self._send(event)

    def _peer(self, event: Event) -> Barrier:
        """The barrier of the other CTA of a pair."""
        return self.barriers[1 - self.cta][event.action.barriers][0]

    def _send(self, event: Event) -> None:
        """Expect the sums of the other CTA, and send it the sums that it stores, to the memory of its stages."""
        op, own, peer = event.action.op, self.awaited(event), self._peer(event)
        assert isinstance(op, ops.ExchangeOp)
        own.arrive(self.clock, 0, 1, 0, event)
        for ring in op.rings:
            for stage in self.rings[1 - self.cta][ring.data]:
                stage.overwrite(self.clock, event)
        peer.arrive(self.clock, 0, 0, event.action.number, event)

    def _multiply(self, event: Event) -> None:
        reads = _given(event.action.reads)
        self._check_registers(event, reads)
        self._read_stage(event, reads)
        if self.cleared:
            self._add_up(event, reads)
        if reads.register_set is not None:
            self.open.sets.add(reads.register_set)

    def _multiply_add(self, event: Event) -> None:
        """Apply multiply-adds.

        Threads read the stage directly, so no proxy fence is needed, and no products stay in flight.
        """
        if not self.cleared:
            raise broken("threads add products to sums that the tile has cleared", "none that it has", event)
        self._read_rings(
            event, _given(event.action.reads), Group(self.index, retired=self.clock[self.index] + 1), self.clock
        )
        self.clock[self.index] += 1

    def _read_stage(self, event: Event, reads: Reads) -> None:
        """Read a stage.

        A load of metadata counts as a part of the products that follow it, because it ends before they begin.
        """
        self._read_rings(event, reads, self.open, self.proxied)
        self.open.positions.add(event.position)

    def _read_rings(self, event: Event, reads: Reads, group: Group, fenced: Clock) -> None:
        for ring in reads.rings:
            stages = self.rings[self.cta][ring]
            stages[event.position % len(stages)].read(group, event.position, self.clock, fenced, event)

    def _check_registers(self, event: Event, reads: Reads) -> None:
        if not self.fenced:
            raise broken(
                "products read and write registers only after a fence that follows other accesses of them",
                "none since the accumulators were last touched",
                event,
            )
        if reads.register_set is None:
            return
        now = (event.tile, event.step)
        words = self.words.get(reads.register_set, {})
        found = {f"metadata set {reads.register_set}": words.get(word) for word in sorted(reads.words)}
        wrong = next(((name, held) for name, held in found.items() if held != now), None)
        if wrong is not None:
            name, held = wrong
            text = "nothing" if held is None else f"those of tile {held[0]}, step {held[1]}"
            raise broken("a product reads the metadata of its own step", f"{text} in {name}", event)

    def _retire(self, pending: int) -> None:
        self.clock[self.index] += 1
        while len(self.flight) > pending:
            self.flight.popleft().retired = self.clock[self.index]

    def _fill(self, event: Event) -> None:
        fill = _given(event.fill)
        if fill.begin % fill.covers:
            raise broken(
                f"a load of metadata begins at a multiple of the {fill.covers} steps that it covers",
                f"step {fill.begin}",
                event,
            )
        if fill.steps and any(fill.number in group.sets for group in (*self.flight, self.open)):
            raise broken(
                "registers are refilled only after the wait that retires the products which read them",
                f"products in flight that read metadata set {fill.number}",
                event,
            )
        held = {word: (fill.tile, step) for word, step in fill.steps.items()}
        self.words.setdefault(fill.number, {}).update(held)
        if event.action.reads is not None:
            self._read_stage(event, event.action.reads)

    def _add_up(self, event: Event, reads: Reads) -> None:
        """Check products with promoted sums: only the first one of a block after a promotion may ignore the old values."""
        for block, fresh in reads.fresh:
            if fresh == (block in self.partial):
                raise broken(
                    "the first product of a block after a promotion begins anew, and no other one does",
                    f"one of block {block} that {'drops' if fresh else 'adds to'} "
                    f"{'sums that are not promoted' if fresh else 'what was promoted before'}",
                    event,
                )
            self.partial.add(block)

    def _promote(self, event: Event) -> None:
        self._read_accumulators(event)
        if not (self.cleared and self.partial):
            missing = "no sums since the last promotion" if self.cleared else "none that the tile has cleared"
            raise broken("sums are promoted once, to cleared ones", missing, event)
        self.partial.clear()

    def _read_sums(self, event: Event) -> None:
        self._read_accumulators(event)
        if self.partial:
            raise broken("all sums are promoted before the store", f"blocks {sorted(self.partial)} left out", event)
        # A combine keeps the promoted sums for the store inside it.
        self.cleared = self.cleared and event.action.kind == "combine"

    def _read_accumulators(self, event: Event) -> None:
        if self.flight or self.open.positions:
            raise broken(
                "accumulators are read only after the wait that retires all products", "products in flight", event
            )
        self.fenced = False

    def awaited(self, event: Event) -> Barrier:
        """The barrier for which an event waits."""
        return self._barrier(event, self.cta, event.position)

    def finish(self, event: Event) -> None:
        """Check the state after the last event."""
        if self.flight or self.open.positions:
            raise broken("a role waits for all its products before it ends", "products in flight", event)


def warps_of(*, single: bool) -> int:
    """The arrivals of one release by a warpgroup."""
    return 1 if single else WARPS_PER_WARPGROUP


def _given(fact: Fact | None) -> Fact:
    if fact is None:
        raise TypeError("an event of this kind has more facts")
    return fact
