"""The bulk-copy engine: loads that complete on mbarriers, stores in bulk groups (PTX ISA, `cp.async.bulk`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from louver.emulator import barriers
from louver.emulator.clocks import NEVER
from louver.emulator.errors import BarrierError, ExitError, MisalignedError
from louver.emulator.mbarrier import Mbarrier
from louver.emulator.shared import Access, SharedMemory, Where
from louver.emulator.tiles import Tensor, signed_coordinates, tile_bytes
from louver.emulator.waiters import Signal
from louver.isa.bulk import TensorMap
from louver.isa.machine import U8, Suspend

if TYPE_CHECKING:
    from louver.emulator.cluster import Cluster, Cta
    from louver.emulator.warp import Warp

LINE = 16
"""Alignment in bytes of the sizes and addresses of linear bulk copies."""

COPY = "a bulk copy"


@dataclass(slots=True)
class Delivery:
    """Bytes in flight into the shared memory of one CTA. phase: the barrier's at issue. what: name in errors."""

    shared: SharedMemory
    where: Where
    fetch: Callable[[], U8]
    barrier: Mbarrier
    phase: int
    size: int
    what: str

    def complete(self) -> None:
        if self.barrier.phase != self.phase:
            raise BarrierError(
                f"{self.what} issued in phase {self.phase} of {self.barrier.name} completes in phase {self.barrier.phase}: "
                f"its {self.size} bytes were not expected (expect_tx) before the phase could complete"
            )
        self.shared.data[self.where] = self.fetch()
        self.barrier.copies -= 1
        self.barrier.complete(self.size)

    def __str__(self) -> str:
        return f"{self.what} of {self.size} bytes to {self.barrier.name}"


class BulkEngine:
    """The bulk copies of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.loads = 0
        self.stores = 0

    def tensor_load(
        self,
        warp: Warp,
        tensor_map: TensorMap,
        coordinates: Sequence[int],
        destination: int,
        mbarrier: int,
        multicast: int | None,
    ) -> None:
        tensor = self._cluster.tensor(tensor_map)
        place = signed_coordinates(coordinates)
        lane = warp.single_lane()
        tensor.check_load(place)
        warp.check_use(tensor.allocation, warp.active_lanes())
        self._cluster.writes.load_box(tensor, place, warp.writer(), warp.clock.rows[lane])
        targets = _targets(warp, destination, multicast)
        _, offset = warp.shared_address(destination)
        where = tile_bytes(tensor_map, offset)
        for cta in targets:
            fetch = partial(tensor.load, place)
            self._start(warp, lane, cta, where, fetch, mbarrier, multicast is not None, tensor_map.box_bytes)

    def linear_load(self, warp: Warp, source: int, destination: int, size: int, mbarrier: int) -> None:
        cta, offset = warp.shared_address(destination)
        if size % LINE or source % LINE or offset % LINE or size <= 0:
            raise MisalignedError(
                f"cp.async.bulk needs a size and addresses that are multiples of {LINE} bytes, "
                f"got {size} bytes from {source:#x} to {offset:#x}"
            )
        memory = self._cluster.memory
        memory.read(source, size)
        lane = warp.single_lane()
        warp.check_use(memory.find(source, source + size - 1), warp.active_lanes())
        where = slice(offset, offset + size)
        self._start(warp, lane, cta, where, lambda: memory.read(source, size), mbarrier, False, size)

    def _start(
        self,
        warp: Warp,
        lane: int,
        cta: Cta,
        where: Where,
        fetch: Callable[[], U8],
        mbarrier: int,
        multicast: bool,
        size: int,
    ) -> None:
        barrier = _barrier(warp, lane, cta, mbarrier, multicast)
        _check_bounds(cta.shared, where)
        access = Access(barrier.agent, barrier.phase + 1, warp.clock.rows[lane], f"{COPY} into shared memory")
        cta.shared.async_write(where, access)
        barrier.copies += 1
        barrier.last_copy_phase = barrier.phase
        self.loads += 1
        delivery = Delivery(cta.shared, where, fetch, barrier, barrier.phase, size, COPY)
        self._cluster.scheduler.issue(delivery, warp)


def _targets(warp: Warp, destination: int, multicast: int | None) -> list[Cta]:
    if multicast is None:
        return [warp.shared_address(destination)[0]]
    ctas = warp.cluster.ctas
    if multicast == 0 or multicast >> len(ctas):
        raise BarrierError(f"a multicast mask names CTAs of the cluster of {len(ctas)}, got {multicast:#b}")
    return [cta for rank, cta in enumerate(ctas) if multicast >> rank & 1]


def _barrier(warp: Warp, lane: int, cta: Cta, address: int, multicast: bool) -> Mbarrier:
    if multicast:
        address = cta.address(warp.shared_address(address)[1])
    found, barrier = barriers.find(warp, address, lane)
    if found is not cta:
        raise BarrierError(f"a bulk copy to CTA {cta.index} must complete on a barrier there, got {barrier.name}")
    barriers.check_async_use(warp, barrier, lane, COPY)
    return barrier


def _check_bounds(shared: SharedMemory, where: Where) -> None:
    if isinstance(where, slice):
        shared.check_bounds(where.start, where.stop - 1)
    else:
        shared.check_bounds(int(where.min()), int(where.max()))


@dataclass(slots=True, eq=False)
class Store:
    """A tiled copy from shared to global memory: it reads the source, then, later, writes the tensor or adds to it."""

    stores: BulkStores
    tensor: Tensor
    coordinates: tuple[int, ...]
    where: Where
    add: bool
    data: U8 | None = None
    written: bool = False

    def complete(self) -> None:
        if self.data is None:
            self.data = self.stores.warp.cta.shared.data[self.where].copy()
            self.stores.warp.cluster.scheduler.issue(self, self.stores.warp)
        else:
            (self.tensor.add if self.add else self.tensor.store)(self.coordinates, self.data)
            self.written = True
        self.stores.signal.notify()

    def finished(self, read_only: bool) -> bool:
        return self.written or (read_only and self.data is not None)

    def __str__(self) -> str:
        return f"a bulk store by {self.stores.warp.name}"


@dataclass(slots=True, eq=False)
class Groups:
    """Bulk groups of one thread. agent: its clock component; a store's epoch is the number of its group, from 1.

    waited: groups whose sources the thread has waited for.
    """

    agent: int
    open: list[Store] = field(default_factory=list[Store])
    closed: list[list[Store]] = field(default_factory=list[list[Store]])
    waited: int = 0


class BulkStores:
    """The bulk stores of one warp's threads."""

    def __init__(self, warp: Warp) -> None:
        self.warp = warp
        self.signal = Signal()
        self._groups: dict[int, Groups] = {}

    def start(self, tensor_map: TensorMap, coordinates: Sequence[int], source: int, *, add: bool) -> None:
        warp = self.warp
        lane = warp.single_lane()
        groups = self._of(lane)
        cta, offset = warp.shared_address(source)
        if cta is not warp.cta:
            raise BarrierError("a bulk store reads the executing CTA's shared memory, got a peer's")
        where = tile_bytes(tensor_map, offset)
        _check_bounds(cta.shared, where)
        access = Access(groups.agent, len(groups.closed) + 1, warp.clock.rows[lane], "a bulk store")
        cta.shared.async_read(where, access, [groups.agent])
        tensor, place = warp.cluster.tensor(tensor_map), signed_coordinates(coordinates)
        tensor.check_store(place)
        warp.check_use(tensor.allocation, warp.active_lanes())
        if not add:
            # Nothing in this kernel can know when the global writes end, so they stay unordered.
            writer = replace(warp.writer(), agent=groups.agent, epoch=NEVER, name=f"a bulk store by {warp.name}")
            warp.cluster.writes.store_box(tensor, place, writer, warp.clock.rows[lane])
        store = Store(self, tensor, place, where, add)
        groups.open.append(store)
        warp.cluster.bulk.stores += 1
        warp.cluster.scheduler.issue(store, warp)

    def commit(self) -> None:
        for lane in self.warp.active_lanes().tolist():
            if lane in self._groups:
                groups = self._groups[lane]
                groups.closed.append(groups.open)
                groups.open = []

    def wait(self, pending: int, read_only: bool) -> Suspend | None:
        waiting = [(lane, self._groups[lane]) for lane in self.warp.active_lanes().tolist() if lane in self._groups]
        for _, groups in waiting:
            target = max(len(groups.closed) - pending, 0)
            late = sum(not store.finished(read_only) for group in groups.closed[:target] for store in group)
            if late:
                what = "read their source" if read_only else "complete"
                return self.warp.suspend(self.signal, f"{late} bulk stores to {what}")
        for lane, groups in waiting:
            groups.waited = max(groups.waited, len(groups.closed) - pending)
            self.warp.clock.see(groups.agent, groups.waited, np.arange(len(self.warp.exists)) == lane)
        return None

    def check_exit(self) -> None:
        """Raise ExitError if a thread ends before its stores have read their sources."""
        for lane, groups in self._groups.items():
            if groups.open:
                raise ExitError(
                    "the thread ends with bulk stores that it never committed (cp.async.bulk.commit_group)", lane=lane
                )
            if any(groups.closed[groups.waited :]):
                raise ExitError(
                    "the thread ends while its bulk stores may still read shared memory: "
                    "cp.async.bulk.wait_group.read 0 must come first",
                    lane=lane,
                )

    def _of(self, lane: int) -> Groups:
        if lane not in self._groups:
            agent = self.warp.cluster.agents.add(f"a bulk store by {self.warp.name}, lane {lane}")
            self._groups[lane] = Groups(agent)
        return self._groups[lane]
