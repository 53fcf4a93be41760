"""The parts of a running cluster: its CTAs, their warps, and their shared state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from louver.emulator.bulk import BulkEngine
from louver.emulator.clocks import Agents, CopyFences, FenceLog, Row, StoreFences
from louver.emulator.decode import Program
from louver.emulator.errors import EarlierGridError, ExitError, LaunchError, UseBeforeArrivalError
from louver.emulator.memory import Allocation, GlobalMemory
from louver.emulator.parameters import Parameters
from louver.emulator.scheduler import Scheduler
from louver.emulator.shared import SharedMemory
from louver.emulator.sync import ClusterBarrier, NamedBarriers, RegisterPool
from louver.emulator.tiles import Tensor
from louver.emulator.waiters import Signal
from louver.emulator.warp import Warp
from louver.emulator.warpgroup import Warpgroup
from louver.emulator.writes import Writes
from louver.isa.bulk import TensorMap
from louver.isa.instruction import LANES, Bits
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, Suspend
from louver.isa.targets import WARPS_PER_WARPGROUP
from louver.ptx.module import Kernel
from louver.ptx.printer import register_name

if TYPE_CHECKING:
    from louver.emulator.order import Order
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


class Cta:
    """A CTA. index: in the grid. rank: in its cluster."""

    def __init__(self, cluster: Cluster, index: int, rank: int) -> None:
        kernel = cluster.kernel
        warps = -(-kernel.threads // LANES)
        self.cluster = cluster
        self.index = index
        self.rank = rank
        fences = cluster.proxy_fences, cluster.copy_fences, cluster.store_fences
        self.shared = SharedMemory(index, kernel.dynamic_shared, cluster.fill, cluster.agents, *fences)
        self.named = NamedBarriers(cluster.agents)
        self.pool = RegisterPool(kernel.threads, kernel.min_ctas, warps)
        self.warpgroups = [Warpgroup(self, i) for i in range(-(-warps // WARPS_PER_WARPGROUP))]
        self.warps = [Warp(self, i, 1 + rank * warps + i) for i in range(warps)]

    def warpgroup_of(self, warp: int) -> Warpgroup:
        return self.warpgroups[warp // WARPS_PER_WARPGROUP]

    def address(self, offset: int) -> int:
        """The `shared::cluster` address of an offset in this window."""
        return SHARED_CLUSTER_BIT | self.rank * RANK_ONE | offset

    def offset(self, address: int) -> int:
        """The offset in this window for an address that its own threads use."""
        return address - self.rank * RANK_ONE if address // RANK_ONE == self.rank else address

    def special(self, name: str, warp: int) -> Bits:
        """A special register over a warp's lanes. Raises LaunchError if it is not modelled."""
        lanes = np.arange(LANES, dtype=np.uint32)
        if name == "%tid.x":
            return lanes + np.uint32(warp * LANES)
        if name == "%laneid":
            return lanes
        values = {
            **self.cluster.special_values,
            "%ctaid.x": self.index % self.cluster.columns,
            "%cluster_ctarank": self.rank,
            "%warpid": warp,
        }
        values["%cluster_ctaid.x"] = self.rank
        if name not in values:
            raise LaunchError(f"the special register {name} is not modelled; {', '.join(sorted(values))} are")
        return np.full(LANES, values[name], np.uint32)

    def check_exit(self) -> None:
        """After all warps have exited: no copy to shared memory is in flight, and no barrier is within a phase."""
        self.pool.check_exit()
        seen = self.seen()
        earlier = self.cluster.earlier
        if earlier is not None and not seen[earlier.agent]:
            raise ExitError(
                f"CTA {self.index} of a dependent launch ends, but no thread of it has executed griddepcontrol.wait: a later grid "
                "that waits for this one would not know that the grids before it have ended"
            )
        for barrier in self.shared.barriers.values():
            if barrier.last_copy_phase >= seen[barrier.agent]:
                raise ExitError(
                    f"CTA {self.index} ends, but nothing in it waited for the last bulk copies or asynchronous stores on {barrier}"
                )
            if barrier.pending != barrier.expected or barrier.transactions:
                raise ExitError(f"CTA {self.index} ends in the middle of a phase of {barrier}")

    def seen(self) -> Row:
        """Events that its threads have seen together."""
        return np.max([warp.clock.most(warp.exists) for warp in self.warps], axis=0)


class Cluster:
    """The CTAs that run together. first: index of the first one in the grid.

    earlier: the grids before a dependent launch, else None. asks: an atomic left memory unchanged since the last check.
    steps: executed so far. undefined: a product read unwritten columns of B. fill: see `SharedMemory`.
    """

    def __init__(
        self,
        kernel: Kernel,
        program: Program,
        memory: GlobalMemory,
        parameters: Parameters,
        writes: Writes,
        order: Order,
        grid: tuple[int, int, int],
        first: int,
        fill: int,
        *,
        dependent: bool,
    ) -> None:
        warps = -(-kernel.threads // LANES) * kernel.cluster
        self.kernel = kernel
        self.fill = fill
        self.undefined = False
        self.program = program
        self.memory = memory
        self.parameters = parameters
        self.writes = writes
        self.asks = False
        self.steps = 0
        self.agents = Agents(warps)
        self.earlier = EarlierGrids(self) if dependent else None
        self.proxy_fences = [FenceLog() for _ in range(warps)]
        self.copy_fences: dict[int, CopyFences] = {}
        self.store_fences: dict[int, StoreFences] = {}
        self.init_fences = [FenceLog() for _ in range(warps)]
        self.scheduler = Scheduler(order, first)
        self.bulk = BulkEngine(self)
        self.barrier = ClusterBarrier(self.agents)
        self.hits = [0] * len(program.steps)
        self.columns = grid[0]
        self.special_values = _launch_values(kernel, grid, first)
        self.ctas = [Cta(self, first + rank, rank) for rank in range(kernel.cluster)]
        self.warps = [warp for cta in self.ctas for warp in cta.warps]
        for warp in self.warps:
            self.agents.names[warp.agent] = warp.name
        self.barrier.enter(self.warps)
        self._touched = {cta.rank: self.agents.clock() for cta in self.ctas}

    def tensor(self, tensor_map: TensorMap) -> Tensor:
        return self.parameters.tensor(tensor_map)

    def touch(self, warp: Warp, cta: Cta, lane: int) -> None:
        """A thread uses another CTA's shared memory: that CTA must have started, and must not end before this use."""
        self.check_started(warp, cta, lane)
        self.note_use(cta, warp.agent, warp.epoch)

    def note_use(self, cta: Cta, agent: int, epoch: int) -> None:
        """The CTA must see this epoch of the agent before it ends."""
        self._touched[cta.rank].see(agent, epoch)

    def check_started(self, warp: Warp, cta: Cta, lane: int) -> None:
        """Raise UseBeforeArrivalError unless that lane knows that the CTA has started."""
        seen = warp.clock.rows[lane]
        if not any(seen[peer.agent] for peer in cta.warps):
            raise UseBeforeArrivalError(
                f"shared memory of CTA {cta.index} is used before that CTA has surely started: a cluster "
                "barrier must come first",
                lane=lane,
            )

    def exit(self, warp: Warp) -> None:
        """The warp has reached its end. Raises ExitError if it leaves work unfinished."""
        warp.done = True
        warp.stores.check_exit()
        warp.copies.check_exit()
        if unfinished := warp.hazards.unfinished():
            raise ExitError(f"the warp ends with {unfinished} wgmma that it has not waited for")
        self.barrier.leave(warp)
        if all(other.done for other in warp.cta.warps):
            warp.cta.check_exit()

    def check_exit(self) -> None:
        """After the end: all uses of a CTA's shared memory by other CTAs must be ordered before its end."""
        for cta in self.ctas:
            late = np.flatnonzero(self._touched[cta.rank].rows > cta.seen())
            for agent in late.tolist():
                raise ExitError(
                    f"CTA {cta.index} may end before {self.agents.names[agent]} uses its shared memory or barriers: "
                    "a cluster barrier at the end must order them"
                )

    def slot_name(self, slot: int) -> str:
        return register_name(self.program.registers[slot])


def _launch_values(kernel: Kernel, grid: tuple[int, int, int], first: int) -> dict[str, int]:
    clusters = grid[0] // kernel.cluster
    values = {
        "%ntid.x": kernel.threads,
        "%nwarpid": -(-kernel.threads // LANES),
        "%cluster_nctarank": kernel.cluster,
        "%cluster_nctaid.x": kernel.cluster,
        "%clusterid.x": first % grid[0] // kernel.cluster,
        "%nclusterid.x": clusters,
        "%dynamic_smem_size": kernel.dynamic_shared,
    }
    for name in ("tid", "cluster_ctaid"):
        values |= {f"%{name}.{axis}": 0 for axis in "yz"}
    for name in ("ntid", "cluster_nctaid"):
        values |= {f"%{name}.{axis}": 1 for axis in "yz"}
    above = {"y": first // grid[0] % grid[1], "z": first // grid[0] // grid[1]}
    for axis, size in zip("xyz", grid, strict=True):
        values[f"%nctaid.{axis}"] = size
        if axis != "x":
            values |= {f"%{name}.{axis}": above[axis] for name in ("ctaid", "clusterid")}
            values[f"%nclusterid.{axis}"] = size
    return values
