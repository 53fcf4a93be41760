"""Models stages in shared memory, and the products that read them."""

from __future__ import annotations

from dataclasses import dataclass, field

from louver.compile.check.barriers import Barrier, Clock
from louver.compile.check.events import Event, broken


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
