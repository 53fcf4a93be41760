"""Asynchronous copies of single threads, in groups of each thread (PTX ISA, `cp.async`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator import barriers, generic
from louver.emulator.bulk import Delivery
from louver.emulator.clocks import CopyFences, StoreFences
from louver.emulator.errors import BarrierError, ExitError, MisalignedError, OutOfBoundsError
from louver.emulator.masks import some
from louver.emulator.waiters import Signal
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import SHARED_CLUSTER_BIT, U8, Mask, Suspend

if TYPE_CHECKING:
    from louver.emulator.cluster import Cluster, Cta
    from louver.emulator.mbarrier import Mbarrier
    from louver.emulator.warp import Warp


Epochs = NDArray[np.int32]
"""Groups or epochs, one number for each lane. A commit or an arrival ends an epoch; the first one is 1."""


@dataclass(slots=True, eq=False)
class Copy:
    """The copies of one instruction. lanes: numbers [lanes]. where: bytes that they write [lanes, size].

    epochs: of those lanes [lanes]. first: the least epoch. source: addresses [32]. reads: bytes read by each lane [32].
    """

    copies: AsyncCopies
    lanes: NDArray[np.int64]
    where: NDArray[np.int64]
    epochs: Epochs
    source: Bits
    reads: Epochs
    first: int

    def complete(self) -> None:
        warp = self.copies.warp
        data = np.zeros((LANES, self.where.shape[1]), np.uint8)
        for size, lanes in parts(self.reads):
            data[lanes, :size] = warp.cluster.memory.gather(self.source, size, lanes, aligned=False)[lanes]
        warp.cta.shared.data[self.where] = data[self.lanes]
        self.copies.finish(self)

    def within(self, target: Epochs, most: int) -> bool:
        """Whether the copy of some lane has an epoch up to target [32]. most: the greatest target."""
        return self.first <= most and some(self.epochs <= target[self.lanes])

    def __str__(self) -> str:
        return f"an asynchronous copy of {self.copies.warp.name}"


@dataclass(slots=True, eq=False)
class Arrival:
    """Arrivals on a barrier by the lanes that are left [32]. Each follows the lane's copies up to its epoch [32]."""

    barrier: Mbarrier
    left: Mask
    epochs: Epochs


def parts(reads: Epochs) -> Iterator[tuple[int, Mask]]:
    """The lanes that read each number of bytes."""
    for size in sorted({*reads.tolist()} - {0}):
        yield size, reads == size


class AsyncCopies:
    """The copies of one warp's threads. Those of a thread are one agent of the clocks.

    epoch: the open one of each thread. ends: the epoch that each group ended, by group number and thread.
    """

    def __init__(self, warp: Warp) -> None:
        self.warp = warp
        self._signal = Signal()
        self._under_way: list[Copy] = []
        self._arrivals: list[Arrival] = []
        self._epoch: Epochs = np.ones(LANES, np.int32)
        self._committed: Epochs = np.zeros(LANES, np.int32)
        self._ends: Epochs = np.zeros((1, LANES), np.int32)
        self._waited: Epochs = np.zeros(LANES, np.int32)
        self._last: Epochs = np.zeros(LANES, np.int32)
        self._agents: NDArray[np.int16] | None = None
        self._fences = CopyFences(warp.agent)

    def start(self, size: int, destination: Bits, source: Bits, count: Bits) -> None:
        warp = self.warp
        reads = np.where(warp.active, count, 0).astype(np.int32)
        if some(more := reads > size):
            lane = int(np.flatnonzero(more)[0])
            raise OutOfBoundsError(f"a copy of {size} bytes reads as many at most, got {int(reads[lane])}", lane=lane)
        self._check_addresses(size, destination, source)
        # Check the sources now, while the instruction is known. The data are read when the copy completes.
        for part, reading in parts(reads):
            warp.cluster.memory.gather(source, part, reading, warp.check_load, aligned=False)
        ((_, lanes, where),) = generic.windows(warp, destination, size)
        epochs = self._epoch[lanes]
        access = warp.access("an asynchronous copy")
        warp.cta.shared.start_writes(where, self._names()[lanes], epochs, access, warp.clock.rows[lanes], lanes)
        self._last[lanes] = epochs
        copy = Copy(self, lanes, where, epochs, source, reads, int(epochs.min()))
        self._under_way.append(copy)
        warp.cluster.scheduler.issue(copy, warp)

    def finish(self, copy: Copy) -> None:
        self._under_way.remove(copy)
        self._signal.notify()
        for arrival in tuple(self._arrivals):
            self._arrive(arrival)

    def commit(self) -> None:
        active = self.warp.active
        self._committed[active] += 1
        if int(self._committed.max()) == len(self._ends):
            self._ends = np.concatenate([self._ends, np.zeros((1, LANES), np.int32)])
        self._ends[self._committed[active], active] = self._epoch[active]
        self._epoch[active] += 1

    def arrive(self, barrier: Mbarrier, lanes: Mask) -> None:
        """The lanes arrive when their copies so far are complete."""
        arrival = Arrival(barrier, lanes.copy(), self._epoch.copy())
        self._epoch[lanes] += 1
        self._arrivals.append(arrival)
        self._arrive(arrival)

    def _arrive(self, arrival: Arrival) -> None:
        """Arrive for lanes whose copies are complete. They release these copies and nothing else."""
        late = np.zeros(LANES, np.bool_)
        for copy in self._under_way:
            late[copy.lanes] |= copy.epochs <= arrival.epochs[copy.lanes]
        done = arrival.left & ~late
        count = int(done.sum())
        if count:
            names = self._names()[done]
            row = np.zeros(int(names.max()) + 1, np.int32)
            row[names] = arrival.epochs[done]
            arrival.left &= ~done
            arrival.barrier.arrive(count, row)
        if not some(arrival.left):
            self._arrivals.remove(arrival)

    def wait(self, pending: int) -> Suspend | None:
        active = self.warp.active
        groups = np.where(active, np.maximum(self._committed - pending, 0), 0)
        target = self._ends[groups, np.arange(LANES)]
        most = int(target.max())
        late = sum(copy.within(target, most) for copy in self._under_way)
        if late:
            return self.warp.suspend(self._signal, f"{late} asynchronous copies to complete")
        if self._agents is not None:
            self._waited = np.maximum(self._waited, target)
            self.warp.clock.see_own(self._agents, self._waited, active)
        return None

    def fence(self) -> None:
        """`fence.proxy.async` by the active lanes."""
        self._fences.record(self.warp.epoch, self._waited, self.warp.active)

    def check_exit(self) -> None:
        """Raise ExitError if a thread ends before it has waited for its copies."""
        late = self._last > self._waited
        if not some(late):
            return
        lane = int(np.flatnonzero(late)[0])
        if self._last[lane] > self._ends[self._committed[lane], lane]:
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
        # Also for lanes that ignore their source: the ISA requires it of every operand.
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


WHAT = "an asynchronous store"


def start_store(warp: Warp, address: Bits, data: U8, mbarrier: Bits) -> None:
    """Start the store of each active lane: its row of data [32, size]."""
    lanes = warp.active_lanes()
    for name, wanted in (("address", address[lanes]), ("mbarrier", mbarrier[lanes])):
        _check_mapped(name, wanted, lanes)
    generic.check_alignment(address[lanes], lanes, data.shape[1])
    for wanted in np.unique(mbarrier[lanes]).tolist():
        chosen = lanes[mbarrier[lanes] == wanted]
        cta, barrier = barriers.locate(warp, int(wanted), int(chosen[0]))
        barriers.check_async_use(warp, barrier, int(chosen[0]), WHAT)
        offsets = _offsets(warp, address, chosen, cta, barrier)
        _start(warp, cta, barrier, chosen, offsets, data)


def _start(
    warp: Warp, cta: Cta, barrier: Mbarrier, lanes: NDArray[np.int64], offsets: NDArray[np.int64], data: U8
) -> None:
    size, count, phase = data.shape[1], len(lanes), barrier.phase
    agent, epoch = _agent(warp.cluster, barrier), phase + 1
    _, _, where = generic.window(cta, lanes, offsets, size)
    agents, epochs = np.full(count, agent, np.int16), np.full(count, epoch, np.int32)
    cta.shared.start_writes(where, agents, epochs, warp.access(WHAT), warp.clock.rows[lanes], lanes)
    # These are uses by the stores, not by the thread: only a wait for the phase orders them.
    barrier.uses.see(agent, epoch)
    warp.cluster.note_use(cta, agent, epoch)
    barrier.copies += count
    barrier.last_copy_phase = phase
    for lane, offset in zip(lanes.tolist(), offsets.tolist(), strict=True):
        bytes_ = data[lane].copy()
        delivery = Delivery(
            cta.shared, slice(offset, offset + size), lambda b=bytes_: b, barrier, phase, size, what=WHAT
        )
        warp.cluster.scheduler.issue(delivery, warp)


def _agent(cluster: Cluster, barrier: Mbarrier) -> int:
    """The agent of asynchronous stores on the barrier. Bulk copies, which need no proxy fence, have another one."""
    if barrier.store_agent is None:
        barrier.store_agent = cluster.agents.add(f"{WHAT} (st.async) that completes on {barrier.name}")
        cluster.store_fences[barrier.store_agent] = StoreFences()
    return barrier.store_agent


def _offsets(warp: Warp, address: Bits, lanes: NDArray[np.int64], cta: Cta, barrier: Mbarrier) -> NDArray[np.int64]:
    found = [warp.shared_address(int(a)) for a in address[lanes]]
    for lane, (other, _) in zip(lanes.tolist(), found, strict=True):
        if other is not cta:
            raise BarrierError(
                f"{WHAT} to CTA {other.index} must complete on a barrier there, got {barrier.name}", lane=lane
            )
    return np.array([offset for _, offset in found], np.int64)


def _check_mapped(name: str, wanted: Bits, lanes: NDArray[np.int64]) -> None:
    if some(own := wanted & np.uint32(SHARED_CLUSTER_BIT) == 0):
        raise OutOfBoundsError(
            f"{WHAT} takes shared::cluster addresses, which mapa makes, got the shared::cta {name} {int(wanted[own][0]):#x}",
            lane=int(lanes[own][0]),
        )
