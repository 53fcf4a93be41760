"""Vector clocks over the agents of one cluster: the work that each lane knows to be complete.

An agent is anything whose accesses need ordering, in epochs:

- A warp: a release or fence begins an epoch.
- An mbarrier: one epoch for each phase of its bulk copies. Its asynchronous stores have another agent.
- A warp's part of warpgroup products: one epoch for each product. A thread's bulk stores: one for each group.
- A thread's asynchronous copies: a commit or arrival ends an epoch.

A row of a clock has, for each agent, the last epoch known to be complete. Each lane has a row, because a wait counts
for the threads that waited. A warp's own accesses are one sequence, because its lanes run in lock step here.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.instruction import LANES
from louver.isa.machine import Mask

Row: TypeAlias = NDArray[np.int32]
"""Last epoch seen of each agent: int32 [agents]; for a warp, int32 [32, agents]."""

NOBODY = 0
"""The agent of bytes that nothing has written."""

NEVER = np.iinfo(np.int32).max
"""Later than every epoch."""

_FIRST_CAPACITY = 64


class Clock:
    """A clock that grows with the number of agents. rows: int32 [agents], or [32, agents] for a warp."""

    __slots__ = ("_least", "rows")

    def __init__(self, capacity: int, lanes: int | None = None) -> None:
        self.rows: Row = np.zeros(capacity if lanes is None else (lanes, capacity), np.int32)
        self._least: Row | None = None

    def grow(self, capacity: int) -> None:
        missing = capacity - self.rows.shape[-1]
        self.rows = np.pad(self.rows, [(0, 0)] * (self.rows.ndim - 1) + [(0, missing)])
        self._least = None

    def join(self, row: Row, lanes: Mask | None = None) -> None:
        """See all that `row` has seen, in all lanes or in `lanes`. An old row may lack new agents."""
        part = self.rows[..., : len(row)]
        if lanes is None:
            np.maximum(part, row, out=part)
        else:
            part[lanes] = np.maximum(part[lanes], row)
        self._least = None

    def see(self, agent: int, epoch: int, lanes: Mask | None = None) -> None:
        part = self.rows[..., agent]
        np.maximum(part, epoch, out=part, where=True if lanes is None else lanes)
        self._least = None

    def take(self, other: Clock, lanes: Mask) -> None:
        """Each given lane sees what it has seen in `other`."""
        self.rows[lanes] = other.rows[lanes]
        self._least = None

    def see_own(self, agents: NDArray[np.int16], epochs: Row, lanes: Mask) -> None:
        """Each given lane sees its own agent. agents, epochs: [32]."""
        rows = np.flatnonzero(lanes)
        own = agents[rows]
        self.rows[rows, own] = np.maximum(self.rows[rows, own], epochs[rows])
        self._least = None

    def least(self) -> Row:
        """Events that every lane has seen."""
        least = self._least
        if least is None:
            least = self._least = np.min(self.rows, axis=0)
        return least

    def most(self, lanes: Mask) -> Row:
        """Events that the given lanes have seen together."""
        return self.rows[lanes].max(axis=0)


def meet(first: Row, second: Row) -> Row:
    """Events that both rows have seen."""
    count = min(len(first), len(second))
    return np.minimum(first[:count], second[:count])


class Agents:
    """The agents of one cluster, numbered from 1. Warps come first."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.names = ["nobody", *(f"warp {index}" for index in range(warps))]
        self._clocks: list[Clock] = []
        self._capacity = max(_FIRST_CAPACITY, 2 * len(self.names))

    def add(self, name: str) -> int:
        """Add an agent. Returns its number."""
        self.names.append(name)
        if len(self.names) > self._capacity:
            self._capacity *= 2
            for clock in self._clocks:
                clock.grow(self._capacity)
        return len(self.names) - 1

    def clock(self) -> Clock:
        """A clock that has seen nothing."""
        self._clocks.append(Clock(self._capacity))
        return self._clocks[-1]

    def extend(self, row: Row) -> Row:
        """`row` with zeros for agents newer than the row."""
        return np.pad(row, (0, self._capacity - len(row)))

    def lane_clock(self) -> Clock:
        """A clock with a row for each lane."""
        self._clocks.append(Clock(self._capacity, LANES))
        return self._clocks[-1]


class FenceLog:
    """The warp's epochs in which each lane executed a fence of one kind."""

    __slots__ = ("_epochs", "_masks", "_table")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._masks: list[Mask] = []
        self._table: NDArray[np.int64] | None = None

    def record(self, epoch: int, lanes: Mask) -> None:
        self._epochs.append(epoch)
        self._masks.append(lanes.copy())
        self._table = None

    def first_after(self, epochs: Row, lanes: NDArray[np.uint8]) -> NDArray[np.int64]:
        """For each access (its epoch and lane), the epoch of that lane's first fence after it, or NEVER."""
        if self._table is None:
            table = np.full((len(self._epochs) + 1, LANES), NEVER, np.int64)
            for index in range(len(self._epochs) - 1, -1, -1):
                table[index] = np.where(self._masks[index], self._epochs[index], table[index + 1])
            self._table = table
        return self._table[np.searchsorted(self._epochs, epochs), lanes]


class CopyFences:
    """The epochs in which each lane first executed a fence after a wait for its asynchronous copies.

    warp: the agent of these epochs.
    """

    __slots__ = ("_epochs", "_waited", "warp")

    def __init__(self, warp: int) -> None:
        self.warp = warp
        self._epochs: list[int] = []
        self._waited: list[Row] = []

    def record(self, epoch: int, waited: Row, lanes: Mask) -> None:
        """A fence of the given lanes, which have waited for their copies' epochs up to `waited` [32]."""
        before = self._waited[-1] if self._waited else np.zeros(LANES, np.int32)
        fenced = np.where(lanes, waited, before)
        if (fenced > before).any():
            self._epochs.append(epoch)
            self._waited.append(fenced)

    def first_after(self, groups: Row, lanes: NDArray[np.uint8]) -> NDArray[np.int64]:
        """For each epoch of a lane's copies, the epoch of that lane's first fence after its wait, or NEVER."""
        unfenced = np.zeros(len(groups), np.int64)
        for waited in self._waited:
            unfenced += waited[lanes] < groups
        return np.array([*self._epochs, NEVER], np.int64)[unfenced]


class StoreFences:
    """Fences of threads that had waited for asynchronous stores of one agent.

    The stores belong to a barrier's agent, so no thread can fence its own. A thread that has waited for them does it.
    """

    __slots__ = ("_fences",)

    def __init__(self) -> None:
        self._fences: list[tuple[int, int, int]] = []

    def record(self, warp: int, epoch: int, waited: int) -> None:
        """A fence in that epoch of the warp, after its threads have waited for the agent up to `waited`."""
        if waited > max((before for other, _, before in self._fences if other == warp), default=0):
            self._fences.append((warp, epoch, waited))

    def covered(self, seen: Row) -> int:
        """The agent's last epoch with a later fence that `seen` has seen; 0 without one."""
        return max((waited for warp, epoch, waited in self._fences if epoch < seen[warp]), default=0)
