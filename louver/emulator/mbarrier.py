"""The mbarrier object: arrivals, transaction bytes, phases (PTX ISA, "Parallel Synchronization: mbarrier")."""

from __future__ import annotations

from louver.emulator.clocks import Agents, Row
from louver.emulator.errors import BarrierError
from louver.emulator.waiters import Signal
from louver.isa.targets import MBARRIER_MAX_ARRIVALS, MBARRIER_MAX_TRANSACTION_BYTES


class Mbarrier:
    """A barrier in shared memory.

    phase: completed phases. pending: arrivals still missing in this phase. transactions: bytes still missing. agent:
    the clock component of its phases; a bulk copy that completes in phase p has epoch p + 1. store_agent: the same for
    asynchronous stores, from the first one on. owner, epoch, lane: the warp's agent, epoch and lane that initialised
    it. uses: the last use by each agent. copies: bulk copies and asynchronous stores of this phase in flight.
    last_copy_phase: the latest phase that one completes in, or -1.
    """

    __slots__ = (
        "_arrived",
        "agent",
        "copies",
        "cta",
        "epoch",
        "expected",
        "lane",
        "last_copy_phase",
        "name",
        "offset",
        "owner",
        "pending",
        "phase",
        "released",
        "signal",
        "store_agent",
        "transactions",
        "uses",
    )

    def __init__(self, cta: int, offset: int, count: int, agents: Agents, owner: int, epoch: int, lane: int) -> None:
        if not 1 <= count <= MBARRIER_MAX_ARRIVALS:
            raise BarrierError(f"an mbarrier counts 1 to {MBARRIER_MAX_ARRIVALS} arrivals, got {count}")
        self.cta = cta
        self.offset = offset
        self.name = f"mbarrier {offset:#x} of CTA {cta}"
        self.expected = count
        self.pending = count
        self.transactions = 0
        self.phase = 0
        self.copies = 0
        self.last_copy_phase = -1
        self.agent = agents.add(f"a bulk copy that completes on {self.name}")
        self.store_agent: int | None = None
        self.owner = owner
        self.epoch = epoch
        self.lane = lane
        self.released = agents.clock()
        self.uses = agents.clock()
        self._arrived = agents.clock()
        self.signal = Signal()

    def __str__(self) -> str:
        return (
            f"{self.name} (phase {self.phase}: {self.pending} of {self.expected} arrivals and "
            f"{self.transactions} bytes missing)"
        )

    def expect(self, bytes: int) -> None:
        """Add transaction bytes to this phase."""
        self.transactions += bytes
        self._check_transactions()

    def arrive(self, count: int, seen: Row) -> None:
        """Arrive `count` times and release what `seen` has seen."""
        if count < 1 or count > self.pending:
            raise BarrierError(f"{count} arrivals on {self}: the phase takes at most {self.pending} more")
        self.pending -= count
        self._arrived.join(seen)
        self._advance()

    def complete(self, bytes: int) -> None:
        """Count `bytes` of a copy as done."""
        self.transactions -= bytes
        self._check_transactions()
        self._advance()

    def idle(self) -> bool:
        """Whether the current phase has no arrival, transaction or copy yet."""
        return self.pending == self.expected and self.transactions == 0 and self.copies == 0

    def _check_transactions(self) -> None:
        if abs(self.transactions) > MBARRIER_MAX_TRANSACTION_BYTES:
            raise BarrierError(
                f"the transaction count of {self} leaves its range of ±{MBARRIER_MAX_TRANSACTION_BYTES} bytes"
            )

    def _advance(self) -> None:
        if self.pending or self.transactions:
            return
        self.phase += 1
        self.pending = self.expected
        self.released.join(self._arrived.rows)
        self.released.see(self.agent, self.phase)
        if self.store_agent is not None:
            self.released.see(self.store_agent, self.phase)
        self.signal.notify()
