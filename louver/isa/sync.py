"""Barriers of warps, CTAs and clusters, proxy fences, order between grids, register reallocation.

Source: PTX ISA, Parallel Synchronization and Communication (also griddepcontrol); Miscellaneous (setmaxnreg).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.isa.instruction import LANES, SM90, Bits, Effect, Requirement, output, reads, register
from louver.isa.machine import Outcome, Suspend, WarpState
from louver.isa.targets import SM_90A

NAMED_BARRIERS = 16
"""Named barriers of a CTA. `__syncthreads` uses barrier 0."""


@dataclass(frozen=True, slots=True)
class WarpSync(Effect):
    """`bar.warp.sync mask`: the lanes of the mask wait for each other and see each other's memory accesses.

    Each lane of the mask must execute it, with the same mask; other lanes must not.
    """

    opcode = "bar.warp.sync"
    takes = (*reads("b32", "mask"),)

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.warp_sync(inputs[0])


def _check_barrier(index: int, threads: int) -> None:
    if not 0 <= index < NAMED_BARRIERS:
        raise ValueError(f"a CTA has the barriers 0 to {NAMED_BARRIERS - 1}, got {index}")
    if threads < LANES or threads % LANES:
        raise ValueError(f"a barrier counts whole warps of {LANES} threads, got {threads}")


@dataclass(frozen=True, slots=True)
class BarrierSync(Effect):
    """`barrier.sync.aligned index, threads`: wait at named barrier 0 to 15 for `threads` threads, a multiple of 32."""

    index: int
    threads: int

    aligned = True
    opcode = "barrier.sync.aligned {self.index}, {self.threads}"

    def __post_init__(self) -> None:
        _check_barrier(self.index, self.threads)

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.barrier_sync(self.index, self.threads)


@dataclass(frozen=True, slots=True)
class BarrierAny(Effect):
    """`barrier.red.or.aligned.pred d, index, threads, a`: like `BarrierSync`; d is true if `a` holds in any thread."""

    index: int
    threads: int

    aligned = True
    opcode = "barrier.red.or.aligned.pred"
    takes = (output("pred"), register("a", "pred"))

    def __post_init__(self) -> None:
        _check_barrier(self.index, self.threads)

    def text(self, *args: str) -> str:
        d, a = args
        return f"{self.mnemonic} {d}, {self.index}, {self.threads}, {a}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        found = warp.barrier_any(self.index, self.threads, inputs[0])
        return found if isinstance(found, Suspend) else (found,)


@dataclass(frozen=True, slots=True)
class ClusterArrive(Effect):
    """`barrier.cluster.arrive.release`: arrive at the cluster barrier."""

    # Not `.aligned`: the lanes may have diverged in a role that runs on one lane.
    opcode = "barrier.cluster.arrive.release"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.cluster_arrive()


@dataclass(frozen=True, slots=True)
class ClusterWait(Effect):
    """`barrier.cluster.wait.acquire`: wait for all threads of the cluster."""

    opcode = "barrier.cluster.wait.acquire"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.cluster_wait()


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Effect):
    """`fence.proxy.async.space`: bulk copies and wgmma after it see ordinary memory accesses before it.

    The emulator only finds missing fences of shared memory.
    """

    space: Literal["shared::cta", "global"] = "shared::cta"

    opcode = "fence.proxy.async.{self.space}"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        if self.space == "shared::cta":
            warp.fence_proxy_async()


@dataclass(frozen=True, slots=True)
class FenceGpu(Effect):
    """`fence.acq_rel.gpu`: a thread that sees a later access also sees all that this thread did or saw before it."""

    opcode = "fence.acq_rel.gpu"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.fence_gpu()


@dataclass(frozen=True, slots=True)
class LaunchDependents(Effect):
    """`griddepcontrol.launch_dependents`: this CTA allows the next grid to begin, if that launch is dependent.

    The next grid begins when every CTA has executed this or ended. Repeated calls have no effect. It orders no memory
    accesses: the next grid must execute `GridWait` before it reads results of this grid.
    """

    opcode = "griddepcontrol.launch_dependents"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Nothing: the run of the next grid tests when it may begin."""


@dataclass(frozen=True, slots=True)
class GridWait(Effect):
    """`griddepcontrol.wait`: wait until the grids before a dependent launch have ended and their accesses are visible.

    In other launches it has no effect.
    """

    opcode = "griddepcontrol.wait"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.grid_wait()


@dataclass(frozen=True, slots=True)
class SetMaxRegisters(Effect):
    """`setmaxnreg.inc/dec.sync.aligned.u32 count`: take or give back registers, for a whole warpgroup."""

    action: Literal["inc", "dec"]
    count: int

    aligned = True
    opcode = "setmaxnreg.{self.action}.sync.aligned.u32 {self.count}"
    needs = Requirement((8, 0), "sm_90a")

    def __post_init__(self) -> None:
        low, high, step = SM_90A.setmaxnreg_min, SM_90A.setmaxnreg_max, SM_90A.setmaxnreg_step
        if not low <= self.count <= high or self.count % step:
            raise ValueError(f"setmaxnreg takes a multiple of {step} from {low} to {high}, got {self.count}")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.set_max_registers(self.count, self.action == "inc")
