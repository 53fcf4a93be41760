"""The asynchronous copies of single threads, in groups of each thread's own (PTX ISA, `cp.async`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator import generic
from louver.emulator.clocks import CopyFences
from louver.emulator.errors import ExitError, MisalignedError, OutOfBoundsError
from louver.emulator.masks import some
from louver.emulator.waiters import Signal
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import SHARED_CLUSTER_BIT, Mask, Suspend

if TYPE_CHECKING:
    from louver.emulator.warp import Warp

Groups = NDArray[np.int32]
"""Numbers of groups, from 1, one a lane."""


@dataclass(slots=True, eq=False)
class Copy:
    """The copies of one instruction. lanes: numbers [lanes]. where: the bytes that they write [lanes, size].

    groups: of those lanes [lanes]. source: addresses [32]. reads: the lanes whose source is read [32]. first: the least group.
    """

    copies: AsyncCopies
    lanes: NDArray[np.int64]
    where: NDArray[np.int64]
    groups: Groups
    source: Bits
    reads: Mask
    first: int

    def complete(self) -> None:
        warp = self.copies.warp
        data = warp.cluster.memory.gather(self.source, self.where.shape[1], self.reads)
        warp.cta.shared.data[self.where] = data[self.lanes]
        self.copies.finish(self)

    def within(self, target: Groups, most: int) -> bool:
        """Whether a lane's part is in one of its groups up to target [32]. most: the greatest of these."""
        return self.first <= most and some(self.groups <= target[self.lanes])

    def __str__(self) -> str:
        return f"an asynchronous copy of {self.copies.warp.name}"


class AsyncCopies:
    """The copies of one warp's threads. Each thread's are an agent of the clocks, whose epochs are its groups."""

    def __init__(self, warp: Warp) -> None:
        self.warp = warp
        self._signal = Signal()
        self._under_way: list[Copy] = []
        self._committed: Groups = np.zeros(LANES, np.int32)
        self._waited: Groups = np.zeros(LANES, np.int32)
        self._last: Groups = np.zeros(LANES, np.int32)
        self._agents: NDArray[np.int16] | None = None
        self._fences = CopyFences(warp.agent)

    def start(self, size: int, destination: Bits, source: Bits, ignore: Bits) -> None:
        warp = self.warp
        reads = warp.active & ~ignore
        self._check_addresses(size, destination, source)
        # Found out now, with the instruction at hand, as far as it can be: the data are read when the copy is done.
        warp.cluster.memory.gather(source, size, reads, warp.check_load)
        ((_, lanes, where),) = generic.windows(warp, destination, size)
        groups = self._committed[lanes] + 1
        access = warp.access("an asynchronous copy")
        warp.cta.shared.start_copies(where, self._names()[lanes], groups, access, warp.clock.rows[lanes], lanes)
        self._last[lanes] = groups
        copy = Copy(self, lanes, where, groups, source, reads, int(groups.min()))
        self._under_way.append(copy)
        warp.cluster.scheduler.issue(copy, warp)

    def finish(self, copy: Copy) -> None:
        """The copy is done."""
        self._under_way.remove(copy)
        self._signal.notify()

    def commit(self) -> None:
        self._committed[self.warp.active] += 1

    def wait(self, pending: int) -> Suspend | None:
        active = self.warp.active
        target = np.where(active, self._committed - pending, 0).astype(np.int32)
        most = int(target.max())
        late = sum(copy.within(target, most) for copy in self._under_way)
        if late:
            return self.warp.suspend(self._signal, f"{late} asynchronous copies to complete")
        if self._agents is not None:
            self._waited = np.maximum(self._waited, target)
            self.warp.clock.see_own(self._agents, self._waited, active)
        return None

    def fence(self) -> None:
        """The active lanes execute `fence.proxy.async`."""
        self._fences.record(self.warp.epoch, self._waited, self.warp.active)

    def check_exit(self) -> None:
        """Raise ExitError when a thread ends before it has waited for its copies."""
        late = self._last > self._waited
        if not some(late):
            return
        lane = int(np.flatnonzero(late)[0])
        if self._last[lane] > self._committed[lane]:
            raise ExitError(
                "the thread ends with asynchronous copies that it never committed (cp.async.commit_group)", lane=lane
            )
        raise ExitError(
            "the thread ends before its asynchronous copies are complete: cp.async.wait_group 0 must come first",
            lane=lane,
        )

    def _check_addresses(self, size: int, destination: Bits, source: Bits) -> None:
        lanes = self.warp.active_lanes()
        if some(peers := destination[lanes] & SHARED_CLUSTER_BIT != 0):
            raise OutOfBoundsError(
                "an asynchronous copy writes the executing CTA's shared memory, got a peer's",
                lane=int(lanes[peers][0]),
            )
        # Of lanes that ignore their source too: the ISA asks for it of every operand.
        if some(odd := source[lanes] % size != 0):
            raise MisalignedError(
                f"an asynchronous copy needs a multiple of {size}, got global address {int(source[lanes][odd][0]):#x}",
                lane=int(lanes[odd][0]),
            )

    def _names(self) -> NDArray[np.int16]:
        """The lanes' agents, int16 [32]."""
        if self._agents is None:
            cluster = self.warp.cluster
            name = f"an asynchronous copy (cp.async) of {self.warp.name}"
            self._agents = np.array([cluster.agents.add(name) for _ in range(LANES)], np.int16)
            cluster.copy_fences[int(self._agents[0])] = self._fences
        return self._agents
