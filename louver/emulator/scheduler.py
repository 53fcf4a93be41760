"""Chooses the next event: the warp that runs, or the asynchronous operation that completes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from louver.emulator.errors import EmulationError
from louver.emulator.order import Earliest, Latest, Order

if TYPE_CHECKING:
    from louver.emulator.decode import Step
    from louver.emulator.waiters import Signal
    from louver.emulator.warp import Warp

FULL_BURST = 1 << 12
"""Most instructions of a warp before others get their turn."""

SHORT_BURST = 24
"""Most instructions of a burst in a seeded order."""


class Operation(Protocol):
    """An asynchronous operation that was issued and may complete at any time."""

    def complete(self) -> None: ...


@dataclass(slots=True, eq=False)
class Pending:
    """An operation with the warp and step that issued it. ordered: it completes before later releases of the warp."""

    operation: Operation
    issuer: Warp
    step: Step
    ordered: bool

    def complete(self) -> None:
        try:
            self.operation.complete()
        except (EmulationError, ValueError) as error:
            kind = type(error) if isinstance(error, EmulationError) else EmulationError
            problem = error.problem if isinstance(error, EmulationError) else str(error)
            raise kind(f"{problem} ({self.operation})", self.issuer.place(step=self.step)) from None


class Scheduler:
    """The order's decisions. pending: operations in flight, oldest first."""

    def __init__(self, order: Order, salt: int) -> None:
        self.order = order
        self.pending: list[Pending] = []
        self._ready: list[Warp] = []
        self._random = random.Random(f"{order} {salt}")

    def issue(self, operation: Operation, issuer: Warp, step: Step | None = None, *, ordered: bool = False) -> None:
        """Begin an operation of `step`, by default the warp's current one."""
        pending = Pending(operation, issuer, step or issuer.step, ordered)
        if isinstance(self.order, Earliest):
            pending.complete()
        else:
            self.pending.append(pending)

    def deliver(self, issuer: Warp) -> None:
        """Complete the ordered operations of `issuer` that are in flight."""
        if not self.pending:
            return
        for pending in [p for p in self.pending if p.issuer is issuer and p.ordered]:
            self.pending.remove(pending)
            pending.complete()

    def ready(self, warp: Warp) -> None:
        self._ready.append(warp)

    def sleep(self, warp: Warp, signal: Signal, reason: str) -> None:
        """The warp cannot run until `signal` is notified."""
        warp.waits_for = reason
        signal.wait(warp)

    def wake(self, warp: Warp) -> None:
        if warp.waits_for:
            warp.waits_for = ""
            self._ready.append(warp)

    def next(self) -> tuple[Warp, int] | None:
        """The next warp and its most instructions; None if no warp can run any more. Completes operations before."""
        while True:
            if self.pending and (not self._ready or self._completes_now()):
                self._complete_one()
            elif self._ready:
                return self._pick()
            else:
                return None

    def drain(self) -> None:
        """Complete all operations in flight."""
        while self.pending:
            self._complete_one()

    def _completes_now(self) -> bool:
        return not isinstance(self.order, Earliest | Latest) and self._random.random() < 0.5

    def _complete_one(self) -> None:
        index = -1 if isinstance(self.order, Latest) else self._random.randrange(len(self.pending))
        self.pending.pop(index).complete()

    def _pick(self) -> tuple[Warp, int]:
        if isinstance(self.order, Earliest):
            warp = min(self._ready, key=lambda warp: warp.agent)
        elif isinstance(self.order, Latest):
            warp = max(self._ready, key=lambda warp: warp.agent)
        else:
            warp = self._random.choice(self._ready)
        self._ready.remove(warp)
        long = isinstance(self.order, Earliest | Latest)
        return warp, FULL_BURST if long else self._random.randint(1, SHORT_BURST)
