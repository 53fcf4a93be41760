"""Asynchronous stores to the shared memory of a CTA of the cluster, with mbarriers there (PTX ISA, `st.async`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator import barriers, generic
from louver.emulator.bulk import Delivery
from louver.emulator.clocks import StoreFences
from louver.emulator.errors import BarrierError, OutOfBoundsError
from louver.emulator.masks import some
from louver.isa.instruction import Bits
from louver.isa.machine import SHARED_CLUSTER_BIT, U8

if TYPE_CHECKING:
    from louver.emulator.cluster import Cluster, Cta
    from louver.emulator.mbarrier import Mbarrier
    from louver.emulator.warp import Warp

WHAT = "an asynchronous store"


def start(warp: Warp, address: Bits, data: U8, mbarrier: Bits) -> None:
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
