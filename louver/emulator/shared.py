"""A CTA's shared memory with its shadow: the last writer and the last readers of each byte.

Every access is checked against the clock of its maker. So a missing wait or fence is found even if this run's order of
events hides it. Addresses are offsets in the CTA's window (`shared::cta`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.emulator.clocks import NOBODY, Agents, CopyFences, FenceLog, Row, StoreFences
from louver.emulator.errors import (
    BarrierError,
    OutOfBoundsError,
    OverwriteInUseError,
    ProxyFenceError,
    UninitialisedError,
    UseBeforeArrivalError,
)
from louver.emulator.masks import every, no_zero, some
from louver.isa.instruction import LANES
from louver.isa.machine import U8

if TYPE_CHECKING:
    from louver.emulator.mbarrier import Mbarrier

WINDOW_START = 1024
"""Offset of dynamic shared memory in the window. The system reserves the first KiB on sm_90 and newer."""

Where: TypeAlias = slice | NDArray[np.int64]
"""Bytes of the window: a slice, or an array of offsets of any shape."""


@dataclass(frozen=True, slots=True)
class Access:
    """The maker of an access. agent, epoch: to record. seen: its clock, int32 [agents]. what: its name in errors.

    fenced: for products, what all threads had seen at their last `fence.proxy.async`; else None.
    """

    agent: int
    epoch: int
    seen: Row
    what: str
    fenced: Row | None = None


class SharedMemory:
    """The window of one CTA. data: uint8 [WINDOW_START + size].

    proxy_fences: of each warp. copy_fences: of asynchronous copies, by the first of a warp's 32 agents for them.
    store_fences: of asynchronous stores, by agent. fill: value of bytes before their first write.
    """

    def __init__(
        self,
        cta: int,
        size: int,
        fill: int,
        agents: Agents,
        proxy_fences: list[FenceLog],
        copy_fences: dict[int, CopyFences],
        store_fences: dict[int, StoreFences],
    ) -> None:
        self.cta = cta
        self.end = WINDOW_START + size
        self.data: U8 = np.full(self.end, fill, np.uint8)
        self.barriers: dict[int, Mbarrier] = {}
        self._agents = agents
        self._proxy_fences = proxy_fences
        self._copy_fences = copy_fences
        self._store_fences = store_fences
        self._writer: NDArray[np.int16] = np.zeros(self.end, np.int16)
        self._epoch: Row = np.zeros(self.end, np.int32)
        self._lane: NDArray[np.uint8] = np.zeros(self.end, np.uint8)
        self._readers: dict[int, Row] = {}
        self._opaque: NDArray[np.bool_] = np.zeros(self.end, np.bool_)

    def check_bounds(self, first: int, last: int) -> None:
        """Raise OutOfBoundsError unless bytes `first` to `last`, inclusive, are in the window."""
        if first < WINDOW_START or last >= self.end:
            raise OutOfBoundsError(
                f"shared bytes {first:#x} to {last:#x} are outside the window of CTA {self.cta}, "
                f"{WINDOW_START:#x} to {self.end - 1:#x}"
            )

    # --- accesses of warps (generic proxy) -------------------------------------------------------------------------
    def read(self, where: NDArray[np.int64], access: Access, rows: Row, lanes: NDArray[np.int64]) -> None:
        """Check and record loads. where: offsets [lanes, size]. rows: clock rows of those lanes [lanes, agents]. lanes:
        their numbers, int64 [lanes].
        """
        self._check_opaque(where, "read")
        writer, epoch = self._writer[where], self._epoch[where]
        if not no_zero(writer):
            bad = writer == NOBODY
            raise UninitialisedError(f"{self._spot(where, bad)} is read but was never written", lane=_lane(bad, lanes))
        seen = access.seen[writer] >= epoch
        if not every(seen):
            seen = np.take_along_axis(rows, writer.astype(np.int64), axis=1) >= epoch
        if not every(seen):
            raise UseBeforeArrivalError(self._unseen_write(where, ~seen, access), lane=_lane(~seen, lanes))
        self._note_read(where, access.agent, access.epoch)

    def write(self, where: NDArray[np.int64], access: Access, rows: Row, lanes: NDArray[np.int64]) -> None:
        """Check and record stores. Arguments: see `read`."""
        self._check_write(where, access, rows, lanes)
        self._writer[where] = access.agent
        self._epoch[where] = access.epoch
        self._lane[where] = lanes[:, None]

    def start_writes(
        self,
        where: NDArray[np.int64],
        agents: NDArray[np.int16],
        epochs: Row,
        access: Access,
        rows: Row,
        lanes: NDArray[np.int64],
    ) -> None:
        """Check and record later writes by threads: the agents own the bytes from now on. agents, epochs: [lanes]."""
        self._check_write(where, access, rows, lanes)
        if len(set(where[:, 0].tolist())) < len(lanes):
            raise OverwriteInUseError(f"the same shared bytes are written by {access.what} of several lanes at once")
        self._writer[where] = agents[:, None]
        self._epoch[where] = epochs[:, None]
        self._lane[where] = lanes[:, None]

    def _check_write(self, where: NDArray[np.int64], access: Access, rows: Row, lanes: NDArray[np.int64]) -> None:
        self._check_opaque(where, "overwritten")
        writer, epoch = self._writer[where], self._epoch[where]
        seen = access.seen[writer] >= epoch
        if not every(seen):
            seen = np.take_along_axis(rows, writer.astype(np.int64), axis=1) >= epoch
        if not every(seen):
            raise OverwriteInUseError(self._unseen_write(where, ~seen, access), lane=_lane(~seen, lanes))
        for agent, plane in self._readers.items():
            if agent != access.agent and not every(seen := plane[where] <= rows[:, agent, None]):
                raise OverwriteInUseError(self._unseen_read(where, ~seen, agent, access), lane=_lane(~seen, lanes))

    # --- accesses of engines (async proxy) -------------------------------------------------------------------------
    def async_read(self, where: Where, access: Access, readers: Sequence[int]) -> None:
        """Check reads by a bulk store or a wgmma, and record them for the agents `readers`."""
        self._check_opaque(where, "read")
        writer, epoch = self._writer[where], self._epoch[where]
        if not no_zero(writer):
            raise UninitialisedError(
                f"{self._spot(where, writer == NOBODY)} is read by {access.what} but was never written"
            )
        seen = access.seen[writer] >= epoch
        if not every(seen):
            raise UseBeforeArrivalError(self._unseen_write(where, ~seen, access))
        self._check_fence(where, writer, epoch, access)
        for agent in readers:
            self._note_read(where, agent, access.epoch)

    def async_write(self, where: Where, access: Access) -> None:
        """Check and record a bulk copy into `where`. The copy owns the bytes from now on, not from its end."""
        self._check_opaque(where, "overwritten")
        writer, epoch = self._writer[where], self._epoch[where]
        seen = access.seen[writer] >= epoch
        if not every(seen):
            raise OverwriteInUseError(self._unseen_write(where, ~seen, access))
        for agent, plane in self._readers.items():
            if not every(unused := plane[where] <= access.seen[agent]):
                raise OverwriteInUseError(self._unseen_read(where, ~unused, agent, access))
        self._check_fence(where, writer, epoch, access)
        self._writer[where] = access.agent
        self._epoch[where] = access.epoch

    def written(self, lines: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether any byte of each line was written. lines: offsets [lines, bytes]."""
        return (self._writer[lines] != NOBODY).any(axis=1)

    # --- barriers --------------------------------------------------------------------------------------------------
    def place_barrier(self, barrier: Mbarrier) -> None:
        self.barriers[barrier.offset] = barrier
        self._opaque[barrier.offset : barrier.offset + 8] = True

    def remove_barrier(self, barrier: Mbarrier) -> None:
        del self.barriers[barrier.offset]
        self._opaque[barrier.offset : barrier.offset + 8] = False
        self._writer[barrier.offset : barrier.offset + 8] = NOBODY
        self._epoch[barrier.offset : barrier.offset + 8] = 0

    # --- helpers ---------------------------------------------------------------------------------------------------
    def _note_read(self, where: Where, agent: int, epoch: int) -> None:
        plane = self._readers.get(agent)
        if plane is None:
            plane = self._readers[agent] = np.zeros(self.end, np.int32)
        plane[where] = epoch

    def _check_opaque(self, where: Where, verb: str) -> None:
        if some(opaque := self._opaque[where]):
            raise BarrierError(f"{self._spot(where, opaque)} belongs to an mbarrier and is {verb}; invalidate it first")

    def _check_fence(self, where: Where, writer: NDArray[np.int16], epoch: Row, access: Access) -> None:
        """Require a fence between a generic write and the access, by the writer or by all threads that multiply."""
        unfenced = writer > NOBODY if access.fenced is None else access.fenced[writer] < epoch
        generic = unfenced & (writer <= self._agents.warps)
        if some(generic):
            agents: list[int] = np.unique(writer[generic]).tolist()
            for agent in agents:
                fences = self._proxy_fences[agent - 1]
                self._check_fenced(where, writer == agent, epoch, fences, agent, "store", access)
        for first, copies in self._copy_fences.items():
            mine = unfenced & (writer >= first) & (writer < first + LANES)
            if some(mine):
                self._check_fenced(where, mine, epoch, copies, copies.warp, "wait for the copy", access)
        for agent, stores in self._store_fences.items():
            mine = unfenced & (writer == agent)
            if some(mine) and some(late := mine & (epoch > stores.covered(access.seen))):
                raise ProxyFenceError(
                    f"{self._spot(where, late)} was stored by {self._agents.names[agent]} and is touched by {access.what}: a "
                    "thread that has waited for the barrier must execute fence.proxy.async, and the access come behind it, or "
                    "every thread that multiplies"
                )

    def _check_fenced(
        self,
        where: Where,
        mine: NDArray[np.bool_],
        epoch: Row,
        fences: FenceLog | CopyFences,
        warp: int,
        after: str,
        access: Access,
    ) -> None:
        fenced = fences.first_after(epoch[mine], self._lane[where][mine])
        missing: NDArray[np.bool_] = fenced >= access.seen[warp]
        if some(missing):
            bad = mine.copy()
            bad[mine] = missing
            raise ProxyFenceError(
                f"{self._spot(where, bad)} was stored by {self._thread(where, bad)} and is touched by {access.what}: "
                f"that thread must execute fence.proxy.async after its {after} and before the barrier, or every thread that "
                "multiplies after the barrier"
            )

    def _offsets(self, where: Where) -> NDArray[np.int64]:
        return np.arange(self.end)[where]

    def _spot(self, where: Where, bad: NDArray[np.bool_]) -> str:
        offsets = self._offsets(where)[bad]
        return f"shared byte {int(offsets.min()):#x} of CTA {self.cta} ({offsets.size} such bytes)"

    def _first(self, where: Where, bad: NDArray[np.bool_]) -> int:
        return int(self._offsets(where)[bad].min())

    def _thread(self, where: Where, bad: NDArray[np.bool_]) -> str:
        first = self._first(where, bad)
        return f"{self._agents.names[int(self._writer[first])]}, lane {int(self._lane[first])}"

    def _unseen_write(self, where: Where, bad: NDArray[np.bool_], access: Access) -> str:
        agent = int(self._writer[self._first(where, bad)])
        return (
            f"{self._spot(where, bad)} is touched by {access.what}, but was last written by "
            f"{self._agents.names[agent]}: no barrier that it waited for orders the write first"
        )

    def _unseen_read(self, where: Where, bad: NDArray[np.bool_], agent: int, access: Access) -> str:
        return (
            f"{self._spot(where, bad)} is overwritten by {access.what}, but is read by "
            f"{self._agents.names[agent]}: no barrier that it waited for orders the read first"
        )


def _lane(bad: NDArray[np.bool_], lanes: NDArray[np.int64]) -> int:
    return int(lanes[bad.any(axis=1)][0])
