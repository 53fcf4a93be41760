"""Operations of warps on mbarriers: initialise, arrive, expect bytes, test, wait (PTX ISA, mbarrier)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from louver.emulator.clocks import Row
from louver.emulator.errors import BarrierError, MisalignedError, OverwriteInUseError
from louver.emulator.masks import every, some
from louver.emulator.mbarrier import Mbarrier
from louver.emulator.order import Latest
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import Mask, Suspend

if TYPE_CHECKING:
    from louver.emulator.cluster import Cta
    from louver.emulator.warp import Warp

SIZE = 8
"""Bytes and alignment of an mbarrier."""


@dataclass(slots=True)
class RemoteArrival:
    """An arrival. It is in flight for a while if the barrier is in another CTA of the cluster."""

    barrier: Mbarrier
    count: int
    transactions: int
    seen: Row

    def complete(self) -> None:
        if self.transactions:
            self.barrier.expect(self.transactions)
        if self.count:
            self.barrier.arrive(self.count, self.seen)

    def __str__(self) -> str:
        return f"a remote arrival on {self.barrier.name}"


def init(warp: Warp, address: Bits, count: Bits) -> None:
    """`mbarrier.init`."""
    for lane in warp.active_lanes().tolist():
        cta, offset = warp.shared_address(int(address[lane]))
        if cta is not warp.cta:
            raise BarrierError("mbarrier.init needs a barrier of the executing CTA, got a peer's", lane=lane)
        _check_alignment(offset, lane)
        if offset in cta.shared.barriers:
            raise BarrierError(
                f"{cta.shared.barriers[offset].name} is initialised already; mbarrier.inval must come first", lane=lane
            )
        cta.shared.check_bounds(offset, offset + SIZE - 1)
        where = np.arange(offset, offset + SIZE)[None]
        cta.shared.write(where, warp.access(), warp.clock.rows[lane][None], np.array([lane]))
        agents = warp.cluster.agents
        barrier = Mbarrier(cta.index, offset, int(count[lane]), agents, warp.agent, warp.epoch, lane)
        cta.shared.place_barrier(barrier)


def invalidate(warp: Warp, address: Bits) -> None:
    """`mbarrier.inval`: all uses must be ordered before it, and no phase may be in progress."""
    for lane in warp.active_lanes().tolist():
        cta, barrier = find(warp, int(address[lane]), lane)
        if not barrier.idle():
            raise BarrierError(f"{barrier} is invalidated while a phase is in progress", lane=lane)
        if (barrier.uses.rows > warp.clock.rows[lane]).any():
            raise OverwriteInUseError(
                f"{barrier.name} is invalidated, but other threads' uses are not ordered before", lane=lane
            )
        cta.shared.remove_barrier(barrier)


def arrive(warp: Warp, address: Bits, count: Bits, transaction_bytes: Bits | None) -> None:
    """`mbarrier.arrive`, with `.expect_tx` if bytes are given; also on another CTA's barrier."""
    found = list(_each(warp, address))
    warp.cluster.scheduler.deliver(warp)
    rows = [warp.clock.most(lanes) for _, _, lanes in found]
    warp.advance()
    for (cta, barrier, lanes), row in zip(found, rows, strict=True):
        total = 0 if transaction_bytes is None else int(transaction_bytes[lanes].astype(np.int64).sum())
        event = RemoteArrival(barrier, int(count[lanes].astype(np.int64).sum()), total, row)
        if cta is warp.cta:
            event.complete()
        else:
            warp.cluster.scheduler.issue(event, warp, ordered=True)


def arrive_after_copies(warp: Warp, address: Bits) -> None:
    """`cp.async.mbarrier.arrive.noinc`: each lane arrives once when its asynchronous copies are complete."""
    for _, barrier, lanes in _each(warp, address, local=True):
        warp.copies.arrive(barrier, lanes)


def test(warp: Warp, address: Bits, parity: Bits) -> Mask:
    """Lanes whose phase has completed. They see what the phase released."""
    out: Mask = np.zeros(LANES, np.bool_)
    if warp.fails_now:
        warp.fails_now = False
        return out
    for _, barrier, lanes in _each(warp, address, local=True):
        ready = lanes & _done(barrier, parity)
        if some(ready):
            warp.clock.join(barrier.released.rows, ready)
            out |= ready
    warp.may_fail = warp.may_fail or some(out)
    return out


def pause(warp: Warp, address: Bits, parity: Bits) -> Suspend | None:
    """For `try_wait`: sleep until the phase of some active lane is complete."""
    found = list(_each(warp, address, local=True))
    if not any(some(lanes & _done(barrier, parity)) for _, barrier, lanes in found):
        barrier = found[0][1]
        wanted = int(parity[np.flatnonzero(found[0][2])[0]])
        return warp.suspend(barrier.signal, f"the phase of parity {wanted} of {barrier}")
    if warp.may_fail and isinstance(warp.cluster.scheduler.order, Latest):
        warp.may_fail, warp.fails_now = False, True
    return None


def find(warp: Warp, address: int, lane: int) -> tuple[Cta, Mbarrier]:
    """The barrier at `address`. The warp's use of it is recorded."""
    cta, barrier = locate(warp, address, lane)
    if cta is not warp.cta:
        warp.cluster.note_use(cta, warp.agent, warp.epoch)
    barrier.uses.see(warp.agent, warp.epoch)
    return cta, barrier


def locate(warp: Warp, address: int, lane: int) -> tuple[Cta, Mbarrier]:
    """The barrier at `address`. Raises unless the lane has seen its initialisation and its CTA has started."""
    cta, offset = warp.shared_address(address)
    _check_alignment(offset, lane)
    if cta is not warp.cta:
        warp.cluster.check_started(warp, cta, lane)
    barrier = cta.shared.barriers.get(offset)
    if barrier is None:
        raise BarrierError(
            f"there is no initialised mbarrier at shared address {offset:#x} of CTA {cta.index}", lane=lane
        )
    row = warp.clock.rows[lane]
    if row[barrier.owner] < barrier.epoch:
        raise BarrierError(
            f"{barrier.name} is used, but its initialisation by {warp.cluster.agents.names[barrier.owner]} is not ordered "
            "before: synchronise after mbarrier.init",
            lane=lane,
        )
    return cta, barrier


def check_async_use(warp: Warp, barrier: Mbarrier, lane: int, what: str) -> None:
    """Raise BarrierError unless the initialisation of `barrier` was fenced for asynchronous operations on it."""
    seen = int(warp.clock.rows[lane][barrier.owner])
    epochs, lanes = np.array([barrier.epoch], np.int32), np.array([barrier.lane], np.uint8)
    for log in (warp.cluster.init_fences[barrier.owner - 1], warp.cluster.proxy_fences[barrier.owner - 1]):
        if int(log.first_after(epochs, lanes)[0]) < seen:
            return
    raise BarrierError(
        f"{what} completes on {barrier.name}, whose mbarrier.init is not followed by fence.mbarrier_init "
        f"(or fence.proxy.async) in {warp.cluster.agents.names[barrier.owner]}, lane {barrier.lane}",
        lane=lane,
    )


def _each(warp: Warp, address: Bits, local: bool = False) -> Iterator[tuple[Cta, Mbarrier, Mask]]:
    """(CTA, barrier, lanes) for each barrier that the active lanes name."""
    lanes = warp.active_lanes()
    used = address[lanes]
    same = every(used == used[0])
    for wanted in used[:1].tolist() if same else np.unique(used).tolist():
        chosen = warp.active if same else warp.active & (address == wanted)
        first = int(lanes[0] if same else np.flatnonzero(chosen)[0])
        cta, barrier = find(warp, int(wanted), first)
        if local and cta is not warp.cta:
            raise BarrierError("only barriers of the executing CTA can be waited for, got a peer's", lane=first)
        yield cta, barrier, chosen


def _done(barrier: Mbarrier, parity: Bits) -> Mask:
    return parity & 1 != (barrier.phase & 1)


def _check_alignment(offset: int, lane: int) -> None:
    if offset % SIZE:
        raise MisalignedError(f"an mbarrier is aligned to {SIZE} bytes, got {offset:#x}", lane=lane)
