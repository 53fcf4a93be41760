"""Models of the check: barriers with phases, the vector clocks that order events, stages in shared memory, and the products
that read them.

A clock holds these facts:

- one count for each agent (a role's warpgroup in a CTA);
- one count for each barrier: its phases that are known to have ended;
- whether the grids before a dependent launch are known to have ended.

An agent that waits for a phase gets the union of the clocks of all agents that arrived in it. Control flow of roles
does not depend on data. So this order holds in every interleaving if no phase of a barrier can be mistaken for another.
This is checked too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from louver.compile.check.events import Event, broken
from louver.isa.rule import RuleError
from louver.isa.targets import MBARRIER_MAX_ARRIVALS, MBARRIER_MAX_TRANSACTION_BYTES

Clock: TypeAlias = list[int]


GRIDS = -1
"""The place in a clock for the grids before this one: 1 if the agent knows that they have ended."""


def join(left: Clock, right: Clock) -> Clock:
    """The union of both clocks."""
    return list(map(max, left, right))


@dataclass(slots=True)
class Barrier:
    """The mbarrier of one stage in one CTA. index: its place in clocks. phase: the current phase, from 0."""

    name: str
    stage: int
    index: int
    arrivals: int
    bytes: int
    clock: Clock
    phase: int = 0
    arrived: int = 0
    received: int = 0
    ended: list[Clock] = field(default_factory=list[Clock])
    waits: dict[int, tuple[int, int]] = field(default_factory=dict[int, "tuple[int, int]"])

    def __post_init__(self) -> None:
        if self.arrivals > MBARRIER_MAX_ARRIVALS or self.bytes > MBARRIER_MAX_TRANSACTION_BYTES:
            raise RuleError(
                f"a phase counts at most {MBARRIER_MAX_ARRIVALS} arrivals and {MBARRIER_MAX_TRANSACTION_BYTES} bytes, got "
                f"{self.arrivals} and {self.bytes} for @{self.name}: use smaller stages"
            )

    @property
    def place(self) -> str:
        """The name of the barrier in messages."""
        return f"stage {self.stage} of @{self.name}"

    @property
    def progress(self) -> str:
        """The arrivals and bytes of the current phase, as text."""
        text = f"{self.arrived} of {self.arrivals} arrivals"
        return f"{text} and {self.received} of {self.bytes} bytes" if self.bytes else text

    def arrive(self, clock: Clock, phase: int, arrivals: int, received: int, event: Event) -> None:
        """Arrive, or complete bytes, in phase `phase`, by the count of the role."""
        if phase < self.phase:
            raise broken(
                "a phase counts all that arrive in it, so that it ends after the last of them",
                f"phase {phase} of {self.place} ended after {self.arrivals} arrivals and {self.bytes} bytes, before this one",
                event,
            )
        if clock[self.index] < phase:
            raise broken(
                "a role arrives in a phase only when it knows that the one before has ended",
                f"nothing that orders phase {phase - 1} of {self.place} before this one",
                event,
            )
        self.arrived += arrivals
        self.received += received
        if self.received > self.bytes or self.arrived > self.arrivals:
            raise broken("a phase gets the arrivals and the bytes that it counts, no more", self._counts(), event)
        self.clock = join(self.clock, clock)
        if self.arrived == self.arrivals and self.received == self.bytes:
            self._end(event)

    def _counts(self) -> str:
        return f"{self.progress} in phase {self.phase} of {self.place}"

    def _end(self, event: Event) -> None:
        for agent, (phase, count) in self.waits.items():
            if phase < self.phase and self.clock[agent] < count:
                raise broken(
                    "a phase ends only after all have gone on that wait for the one before",
                    f"phase {self.phase} of {self.place}, which can end before a role has seen the end of phase {phase}",
                    event,
                )
        self.phase += 1
        self.clock[self.index] = self.phase
        self.ended.append(self.clock)
        self.clock = list(self.clock)
        self.arrived = self.received = 0

    def passes(self, phase: int, clock: Clock, event: Event) -> bool:
        """Whether a wait for `phase` ends, for a role with this clock.

        A wait for the phase before the first one always ends.
        """
        if clock[self.index] < phase:
            raise broken(
                "a role waits for a phase only when it knows that the one before has ended",
                f"nothing that orders phase {phase - 1} of {self.place} before this one: the wait could pass too early",
                event,
            )
        if phase >= self.phase:
            return False
        if 0 <= phase < self.phase - 1:
            raise broken(
                "a phase ends only after all have gone on that wait for the one before",
                f"a wait for phase {phase} of {self.place} when phase {self.phase - 1} has ended",
                event,
            )
        return True

    def seen(self, agent: int, count: int, phase: int) -> None:
        """Record that an agent's wait for a phase has ended. count: the agent's clock at that time."""
        self.waits[agent] = (phase, count)


@dataclass(slots=True)
class Group:
    """Products that are committed together.

    positions: positions of the stages that they read.
    sets: metadata sets that they read.
    retired: the clock of their agent at the wait that retires them; None before.
    """

    agent: int
    positions: set[int] = field(default_factory=set[int])
    sets: set[int] = field(default_factory=set[int])
    retired: int | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """The bytes of a copy in a stage.

    They have arrived when `phase` of `barrier` ends. generic: whether threads write them.
    """

    first: int
    last: int
    barrier: Barrier
    phase: int
    generic: bool = False

    def seen(self, clock: Clock) -> bool:
        """Whether an agent with this clock knows that the copy has ended."""
        return clock[self.barrier.index] > self.phase


@dataclass(slots=True)
class Stage:
    """One stage of a ring in one CTA. position: the step, counted over all tiles, that fills it; -1 before the first."""

    ring: str
    number: int
    bytes: int
    position: int = -1
    writes: list[Write] = field(default_factory=list[Write])
    readers: list[Group] = field(default_factory=list[Group])
    before: tuple[list[Write], list[Group]] = field(default_factory=lambda: (list[Write](), list[Group]()))

    @property
    def place(self) -> str:
        """The name of the stage in messages."""
        return f"stage {self.number} of @{self.ring}"

    def write(self, write: Write, position: int, clock: Clock, event: Event) -> None:
        """Begin a copy by an agent with this clock."""
        if position != self.position:
            self.before = (self.writes, self.readers)
            self.writes, self.readers, self.position = [], [], position
        _check_free(self.place, *self.before, clock, event)
        if write.last > self.bytes or any(write.first < o.last and o.first < write.last for o in self.writes):
            raise broken(
                f"copies fill the {self.bytes} bytes of a stage side by side",
                f"bytes {write.first} to {write.last} of {self.place}, outside it or copied before",
                event,
            )
        self.writes.append(write)

    def overwrite(self, clock: Clock, event: Event) -> None:
        """Reuse the memory of the stage for other data, by an agent with this clock."""
        _check_free(self.place, self.writes, self.readers, clock, event)

    def read(self, group: Group, position: int, clock: Clock, fenced: Clock, event: Event) -> None:
        """Begin products that read the stage with the data of step `position`.

        clock: the clock of the agent.
        fenced: its clock at its last proxy fence.
        """
        if self.position != position or not all(write.seen(clock) for write in self.writes):
            held = "no wait for its copies before" if self.position == position else "the bytes of another step in it"
            raise broken(
                "a product reads a stage only after its bytes have arrived", f"{self.place} with {held}", event
            )
        if not all(write.seen(fenced) for write in self.writes if write.generic):
            raise broken(
                "products read what threads have copied only after a proxy fence behind the wait for it",
                f"{self.place} with none since its copies arrived",
                event,
            )
        filled = sum(write.last - write.first for write in self.writes)
        if filled != self.bytes:
            raise broken(
                "copies fill the whole stage that products read",
                f"{filled} of {self.bytes} bytes of {self.place}",
                event,
            )
        if not self.readers or self.readers[-1] is not group:
            self.readers.append(group)


def _check_free(place: str, writes: list[Write], readers: list[Group], clock: Clock, event: Event) -> None:
    if any(group.retired is None or clock[group.agent] < group.retired for group in readers):
        raise broken(
            "a stage is overwritten only after the last product that reads it has been waited for",
            f"a copy into {place} that no wait for those products comes before",
            event,
        )
    if not all(old.seen(clock) for old in writes):
        raise broken(
            "a stage is overwritten only after the copies into it have ended",
            f"a copy into {place} that may meet one before it",
            event,
        )
