"""Computes the times of each role's actions, from the model of the protocol check and assumed lengths of copies,
products and stores.

The order is that of the check: a wait ends when the barrier of the kernel allows it. Lengths are in units of the
products of one K step. They are assumptions that make the order visible, and are not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from louver.compile.check.agents import Agent
from louver.compile.check.check import Model
from louver.compile.check.events import Event, Item
from louver.compile.check.stages import Barrier
from louver.ir.sched import ops

SpanKind = Literal["copy", "products", "wait", "store", "release"]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Assumed lengths, in units of the products of one K step.

    products: products of a step.
    copies: copies of all bytes of a stage.
    latency: from the end of a copy until its bytes are visible.
    store: store of a tile.
    """

    products: float = 1.0
    copies: float = 0.8
    latency: float = 0.6
    store: float = 2.5


@dataclass(frozen=True, slots=True)
class Span:
    """An action of a role's warpgroup, from `begin` to `end`.

    stage: the stage of the ring, for a copy, products or a release.
    step: the step in the tile. For a release it is the step whose stage is released.
    """

    role: str
    warpgroup: int
    kind: SpanKind
    tile: int
    step: int
    stage: int
    begin: float
    end: float


def timeline(kernel: ops.KernelOp, steps: Sequence[int], lengths: Lengths = Lengths()) -> list[Span]:
    """The spans of the first CTA, in the order in which the check runs events.

    kernel: schedule IR with assigned shared memory.
    steps: K steps of each tile.

    Raises the errors of `check_protocol`.
    """
    model = Model.of(kernel, [Item(0, each) for each in steps])
    clock = _Clock(kernel, model, lengths)
    model.run(clock.seen)
    return clock.spans


@dataclass(slots=True)
class _Clock:
    """Gives each event its time.

    now: the time of each agent. copied: the end of each CTA's copies. groups: ends of products.
    """

    kernel: ops.KernelOp
    model: Model
    lengths: Lengths
    spans: list[Span] = field(default_factory=list[Span])
    now: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    copied: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    groups: dict[int, list[float]] = field(default_factory=lambda: defaultdict[int, list[float]](list[float]))
    counted: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    pending: dict[int, float] = field(default_factory=lambda: defaultdict[int, float](float))
    ended: dict[int, list[float]] = field(default_factory=lambda: defaultdict[int, list[float]](list[float]))

    def seen(self, agent: Agent, event: Event) -> None:
        """Give a time to an event of an agent."""
        begin = end = self.now[agent.index]
        arrival = begin
        match event.action.kind:
            case "acquire" | "wait":
                end = max(begin, self._passed(agent, event))
                self._add(agent, event, "wait", begin, end)
            case "bulk_load" | "copy_metadata" | "gather" | "turn":
                arrival = self._copy(agent, event)
            case "mma":
                self._multiply(agent, event)
            case "fma":
                self._multiply(agent, event)
                end = self.groups[agent.index][-1]
            case "mma_wait":
                left = self.groups[agent.index]
                done = left[: len(left) - event.action.number]
                end = max([begin, *done[-1:]])
            case "store" | "bulk_store":
                end = begin + self.lengths.store
                self._add(agent, event, "store", begin, end)
            case "release":
                self._add(agent, event, "release", begin, begin, event.action.number)
            case _:
                pass
        self.now[agent.index] = end
        self._arrive(arrival)

    def _copy(self, agent: Agent, event: Event) -> float:
        """The time when the bytes of a copy are visible. Copies follow each other."""
        copy = event.action.copy
        assert copy is not None
        rings = agent.rings[agent.cta]
        whole = sum(stages[0].bytes for name, stages in rings.items() if name not in ("d", "blocks"))
        size = rings[copy.ring][0].bytes if copy.bytes is None else copy.bytes
        begin = max(self.now[agent.index], self.copied[agent.cta])
        self.copied[agent.cta] = end = begin + self.lengths.copies * size / whole
        self._add(agent, event, "copy", begin, end + self.lengths.latency)
        return end + self.lengths.latency

    def _multiply(self, agent: Agent, event: Event) -> None:
        before = self.groups[agent.index]
        begin = max([self.now[agent.index], *before[-1:]])
        before.append(begin + self.lengths.products)
        self._add(agent, event, "products", begin, before[-1])

    def _passed(self, agent: Agent, event: Event) -> float:
        """The end of the phase for which a wait waited. The wait has just ended."""
        barrier = agent.awaited(event)
        round_ = event.position // len(agent.barriers[agent.cta][event.action.barriers])
        phase = round_ - (event.action.kind == "acquire")
        return self.ended[barrier.index][phase] if phase >= 0 else 0.0

    def _arrive(self, arrival: float) -> None:
        """Record the barriers at which the last event arrived. A phase ends with its latest arrival."""
        for barrier in self._barriers():
            counted = (barrier.phase, barrier.arrived, barrier.received)
            if self.counted.get(barrier.index, (0, 0, 0)) == counted:
                continue
            self.counted[barrier.index] = counted
            self.pending[barrier.index] = max(self.pending[barrier.index], arrival)
            if len(self.ended[barrier.index]) < barrier.phase:
                self.ended[barrier.index].append(self.pending.pop(barrier.index))

    def _barriers(self) -> list[Barrier]:
        return [barrier for each in self.model.barriers for stages in each.values() for barrier in stages]

    def _add(self, agent: Agent, event: Event, kind: SpanKind, begin: float, end: float, lag: int = 0) -> None:
        if agent.cta or (kind == "wait" and end <= begin):
            return
        stages = next(op.stages.value.data for op in self.kernel.body.block.ops if isinstance(op, ops.RingOp))
        role, warpgroup = self.model.holders[agent.index]
        stage = (event.position - lag) % stages
        self.spans.append(Span(role.sym_name.data, warpgroup, kind, event.tile, event.step - lag, stage, begin, end))
