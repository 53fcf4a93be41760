"""A warp: its registers, masks and clock, and the machine that its instructions see (`isa.machine.WarpState`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator import barriers, generic
from louver.emulator.async_copies import AsyncCopies, start_store
from louver.emulator.bulk import BulkStores
from louver.emulator.clocks import Row
from louver.emulator.errors import ConvergenceError, OutOfBoundsError, Place
from louver.emulator.memory import Allocation
from louver.emulator.shared import Access
from louver.emulator.waiters import Signal
from louver.emulator.writes import Writer
from louver.isa.bulk import TensorMap
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, U8, Mask, Space, Suspend
from louver.isa.wgmma import Wgmma
from louver.ptx.module import If, Inst, Node
from louver.ptx.printer import instruction_text, register_name

if TYPE_CHECKING:
    from louver.emulator.cluster import Cta
    from louver.emulator.decode import Registers, Step


_SHOWN = 4
"""Registers of a vector that are shown; a product has up to 128 accumulators."""


def describe(node: Node) -> str:
    """An instruction or branch, with long vectors shortened."""
    if isinstance(node, Inst):
        return f"{re.sub(r'{([^{}]*)}', _shortened, instruction_text(node))};"
    kind = "if" if isinstance(node, If) else "repeat while"
    return f"{kind} {'!' if node.negated else ''}{register_name(node.condition)}"


def _shortened(vector: re.Match[str]) -> str:
    parts = vector[1].split(", ")
    return f"{{{', '.join([*parts[:_SHOWN], '…'])}}}" if len(parts) > _SHOWN else vector[0]


@dataclass(slots=True)
class Frame:
    """A level of divergence: the mask before it, and the lanes that must still run the other branch."""

    before: Mask
    other: Mask


class Warp:
    """A warp of one CTA. index: in the CTA. agent: its number in the cluster's clocks."""

    def __init__(self, cta: Cta, index: int, agent: int) -> None:
        self.cta = cta
        self.cluster = cta.cluster
        self.index = index
        self.agent = agent
        self.name = f"warp {index} of CTA {cta.index}"
        threads = cta.cluster.kernel.threads - index * LANES
        self.exists: Mask = np.arange(LANES) < threads
        self.mask: Mask = self.exists
        self.active: Mask = self.exists
        self.registers: Registers = [None] * len(cta.cluster.program.slots)
        self.counter = 0
        self.frames: list[Frame] = []
        self.done = False
        self.epoch = 1
        self.clock = cta.cluster.agents.lane_clock()
        self.clock.see(agent, self.epoch)
        self.fenced = cta.cluster.agents.lane_clock()
        self.step: Step = cta.cluster.program.steps[0]
        self.waits_for = ""
        self.sleeps_on: Signal | None = None
        self.stores = BulkStores(self)
        self.copies = AsyncCopies(self)
        self.hazards = cta.warpgroup_of(index).register_hazards(self)
        self.arrived_at: object | None = None
        self.may_fail = True
        self.fails_now = False

    # --- scheduling ------------------------------------------------------------------------------------------------
    def wake(self) -> None:
        self.cluster.scheduler.wake(self)

    def suspend(self, signal: Signal, reason: str) -> Suspend:
        """Sleep until `signal` is notified, then retry the instruction."""
        self.sleeps_on = signal
        return Suspend(reason)

    def place(self, lane: int | None = None, step: Step | None = None) -> Place:
        """The warp's place now, or at `step`. The thread is that of `lane`, or now that of the only active lane."""
        lanes = np.flatnonzero(self.active)
        if lane is None and step is None and lanes.size == 1:
            lane = int(lanes[0])
        step = step or self.step
        thread = None if lane is None else self.index * LANES + lane
        return Place(self.cta.index, self.index, thread, describe(step.node), step.position)

    def single_lane(self) -> int:
        """The only active lane. Raises ConvergenceError if there are several."""
        lanes = np.flatnonzero(self.active)
        if lanes.size != 1:
            raise ConvergenceError(
                f"one thread must issue a bulk copy, got {lanes.size} active lanes: guard it with elect.sync or a lane test"
            )
        return int(lanes[0])

    # --- order -----------------------------------------------------------------------------------------------------
    def release(self, lanes: Mask) -> Row:
        """Release what the given lanes have seen and done so far."""
        # Accesses after a release are seen after all before it, so remote arrivals in flight are delivered first.
        self.cluster.scheduler.deliver(self)
        row = self.clock.most(lanes)
        self.advance()
        return row

    def advance(self) -> None:
        """Begin a new epoch: earlier releases and fences do not cover later accesses."""
        self.epoch += 1
        self.clock.see(self.agent, self.epoch)

    def access(self, what: str = "this instruction") -> Access:
        return Access(self.agent, self.epoch, self.clock.least(), what)

    @property
    def global_name(self) -> tuple[int, int]:
        """(first CTA of its cluster, agent)."""
        return self.cluster.ctas[0].index, self.agent

    def fence_gpu(self) -> None:
        self.cluster.writes.handovers.fence(self.global_name, self.release(self.active))

    def writer(self) -> Writer:
        """The warp as writer of global memory."""
        return Writer(self.cluster.ctas[0].index, self.agent, self.epoch, self.name)

    def check_use(self, allocation: Allocation, lanes: NDArray[np.int64]) -> None:
        """Check any access to global memory that these lanes start."""
        if self.cluster.earlier is not None:
            self.cluster.earlier.check(allocation, self.clock.rows[lanes], lanes)

    def check_read_only(self, allocation: Allocation, index: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        if self.cluster.earlier is not None:
            self.cluster.earlier.check_read_only(allocation)
        self.check_load(allocation, index, lanes)

    def check_atomic(self, allocation: Allocation, index: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        self.check_use(allocation, lanes)

    def check_load(self, allocation: Allocation, index: NDArray[np.int64], lanes: NDArray[np.int64]) -> None:
        self.check_use(allocation, lanes)
        self.cluster.writes.load(allocation, index, self.writer(), self.clock.rows[lanes])

    def check_store(self, allocation: Allocation, index: NDArray[np.int64], lanes: NDArray[np.int64], data: U8) -> None:
        self.check_use(allocation, lanes)
        self.cluster.writes.store(allocation, index, data, self.writer(), self.clock.rows[lanes])

    def shared_address(self, address: int) -> tuple[Cta, int]:
        """(CTA, offset in its window) of a `shared::cta` or `shared::cluster` address."""
        if not address & SHARED_CLUSTER_BIT:
            return self.cta, self.cta.offset(address)
        rank = (address >> 24) & 0x7F
        if rank >= len(self.cluster.ctas):
            raise OutOfBoundsError(f"CTA rank {rank} is outside the cluster of {len(self.cluster.ctas)}")
        return self.cluster.ctas[rank], address % RANK_ONE

    # --- isa.machine.WarpState -------------------------------------------------------------------------------------
    def shared_symbol(self, offset: Bits) -> Bits:
        return offset.astype(np.uint32) | np.uint32(self.cta.rank * RANK_ONE)

    def special(self, name: str) -> Bits:
        return self.cta.special(name, self.index)

    def load(self, space: Space, address: Bits, size: int, *, read_only: bool = False, volatile: bool = False) -> U8:
        if volatile:
            return generic.load_volatile(self, address, size)
        return generic.load(self, space, address, size, read_only=read_only)

    def store(self, space: Space, address: Bits, data: U8, *, volatile: bool = False) -> None:
        if volatile:
            generic.store_volatile(self, address, data)
        else:
            generic.store(self, space, address, data)

    atomic_add, atomic_update = generic.atomic_add, generic.atomic_update
    shuffle, tensor_map = generic.shuffle, generic.tensor_map
    mbarrier_init, mbarrier_invalidate = barriers.init, barriers.invalidate
    mbarrier_arrive, mbarrier_test, mbarrier_pause = barriers.arrive, barriers.test, barriers.pause
    async_arrive, async_store = barriers.arrive_after_copies, start_store

    def barrier_sync(self, index: int, threads: int) -> Suspend | None:
        return self.cta.named.sync(self, index, threads)

    def barrier_any(self, index: int, threads: int, value: Mask) -> Mask | Suspend:
        return self.cta.named.any(self, index, threads, value)

    def warp_sync(self, mask: Bits) -> None:
        lanes = sum(1 << lane for lane in self.active_lanes().tolist())
        if wrong := [lane for lane in self.active_lanes().tolist() if int(mask[lane]) != lanes]:
            raise ConvergenceError(
                f"the mask of bar.warp.sync names the lanes that execute it, {lanes:#010x}, got {int(mask[wrong[0]]):#010x}",
                lane=wrong[0],
            )
        self.clock.join(self.clock.most(self.active), self.active)

    def cluster_arrive(self) -> None:
        self.cluster.barrier.arrive(self)

    def cluster_wait(self) -> Suspend | None:
        return self.cluster.barrier.wait(self)

    def grid_wait(self) -> Suspend | None:
        return None if self.cluster.earlier is None else self.cluster.earlier.wait(self)

    def fence_proxy_async(self) -> None:
        self.cluster.proxy_fences[self.agent - 1].record(self.epoch, self.active)
        self.copies.fence()
        for agent, fences in self.cluster.store_fences.items():
            fences.record(self.agent, self.epoch, int(self.clock.rows[self.active, agent].max()))
        self.fenced.take(self.clock, self.active)
        self.advance()

    def fence_mbarrier_init(self) -> None:
        self.cluster.init_fences[self.agent - 1].record(self.epoch, self.active)
        self.advance()

    def fence_wgmma(self) -> None:
        self.hazards.fence()

    def async_copy(self, size: int, destination: Bits, source: Bits, count: Bits) -> None:
        self.copies.start(size, destination, source, count)

    def async_commit(self) -> None:
        self.copies.commit()

    def async_wait(self, pending: int) -> Suspend | None:
        return self.copies.wait(pending)

    def bulk_tensor_load(
        self, tensor_map: TensorMap, coordinates: Sequence[int], destination: int, mbarrier: int, multicast: int | None
    ) -> None:
        self.cluster.bulk.tensor_load(self, tensor_map, coordinates, destination, mbarrier, multicast)

    def bulk_tensor_store(
        self, tensor_map: TensorMap, coordinates: Sequence[int], source: int, *, add: bool = False
    ) -> None:
        self.stores.start(tensor_map, coordinates, source, add=add)

    def bulk_load(self, source: int, destination: int, size: int, mbarrier: int) -> None:
        self.cluster.bulk.linear_load(self, source, destination, size, mbarrier)

    def bulk_commit(self) -> None:
        self.stores.commit()

    def bulk_wait(self, pending: int, read_only: bool) -> Suspend | None:
        return self.stores.wait(pending, read_only)

    def wgmma(self, instruction: Wgmma, d: Bits, inputs: Sequence[Bits]) -> None:
        self.cta.warpgroup_of(self.index).issue(self, instruction, inputs)

    def wgmma_commit(self) -> None:
        self.cta.warpgroup_of(self.index).commit(self)

    def wgmma_wait(self, pending: int) -> Suspend | None:
        return self.cta.warpgroup_of(self.index).wait(self, pending)

    def set_max_registers(self, count: int, increase: bool) -> Suspend | None:
        return self.cta.pool.set(self, count, increase)

    def active_lanes(self) -> NDArray[np.int64]:
        return self.active.nonzero()[0]
