"""The grids before a dependent launch, for one of its clusters. They end at any time after a thread waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator.clocks import Row
from louver.emulator.errors import EarlierGridError
from louver.emulator.memory import Allocation
from louver.emulator.waiters import Signal
from louver.isa.machine import Suspend

if TYPE_CHECKING:
    from louver.emulator.cluster import Cluster
    from louver.emulator.warp import Warp


class EarlierGrids:
    """An agent of the cluster's clocks with one epoch. A warp that has seen it knows that these grids have ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.agent = cluster.agents.add("the grids before this one")
        self._signal = Signal()
        self._asked = False
        self._ended = False

    def wait(self, warp: Warp) -> Suspend | None:
        """`griddepcontrol.wait` by the warp's active lanes."""
        if not self._asked:
            self._asked = True
            warp.cluster.scheduler.issue(self, warp)
        if not self._ended:
            return warp.suspend(self._signal, "the grids before this one to end")
        warp.clock.see(self.agent, 1, warp.active)
        return None

    def complete(self) -> None:
        self._ended = True
        self._signal.notify()

    def check(self, allocation: Allocation, rows: Row, lanes: NDArray[np.int64]) -> None:
        """Raise EarlierGridError for lanes that have not waited. rows: what the lanes have seen [lanes, agents]."""
        if allocation.settled:
            return
        early = lanes[rows[:, self.agent] == 0]
        if early.size:
            raise EarlierGridError(
                f"{allocation.name} is accessed while grids before this one may still use it: griddepcontrol.wait must come "
                "first, by this thread or by one that it has waited for",
                lane=int(early[0]),
            )

    def check_read_only(self, allocation: Allocation) -> None:
        """Check a load that assumes that nobody writes the bytes meanwhile."""
        if not allocation.settled:
            raise EarlierGridError(
                f"{allocation.name} is loaded by ld.global.nc, but grids before this one may write it while this one runs: use "
                "an ordinary load"
            )

    def __str__(self) -> str:
        return "the end of the grids before this one"
