"""Barriers of warp, CTA and cluster, proxy fences, order between grids, register reallocation.

Source: PTX ISA, Parallel Synchronization and Communication (griddepcontrol too); Miscellaneous (setmaxnreg).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from louver.isa.instruction import LANES, SM90, Bits, Effect, Operand, Requirement
from louver.isa.machine import Outcome, Suspend, WarpState
from louver.isa.targets import SM_90A

NAMED_BARRIERS = 16
"""Named barriers of a CTA; 0 is the one that `__syncthreads` uses."""


@dataclass(frozen=True, slots=True)
class WarpSync(Effect):
    """`bar.warp.sync mask`: the active lanes wait for each other, and see each other's memory accesses."""

    opcode = "bar.warp.sync"
    takes = (Operand("mask", "in", "b32"),)

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Synchronise the active lanes."""
        warp.warp_sync()


def _check_barrier(index: int, threads: int) -> None:
    if not 0 <= index < NAMED_BARRIERS:
        raise ValueError(f"a CTA has the barriers 0 to {NAMED_BARRIERS - 1}, got {index}")
    if threads < LANES or threads % LANES:
        raise ValueError(f"a barrier counts whole warps of {LANES} threads, got {threads}")


@dataclass(frozen=True, slots=True)
class BarrierSync(Effect):
    """`barrier.sync.aligned index, threads`: wait for that many threads, a multiple of 32, at a named barrier (0 to 15)."""

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
    """`barrier.red.or.aligned.pred d, index, threads, a`: as `BarrierSync`, and d is whether `a` holds for any of the threads."""

    index: int
    threads: int

    aligned = True
    opcode = "barrier.red.or.aligned.pred"
    takes = (Operand("d", "out", "pred", kind="register"), Operand("a", "in", "pred", kind="register"))

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
    """`barrier.cluster.arrive.release`: arrive at the cluster's barrier."""

    # Not `.aligned`, since a role may have run one lane alone.
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
    """`fence.proxy.async.space`: ordinary accesses of shared or global memory before it are seen by bulk copies and wgmma after it.

    The emulator finds missing fences of shared memory alone.
    """

    space: Literal["shared::cta", "global"] = "shared::cta"

    opcode = "fence.proxy.async.{self.space}"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        if self.space == "shared::cta":
            warp.fence_proxy_async()


@dataclass(frozen=True, slots=True)
class FenceGpu(Effect):
    """`fence.acq_rel.gpu`: a thread that sees a later access of this one sees all that this one has done or seen before."""

    opcode = "fence.acq_rel.gpu"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.fence_gpu()


@dataclass(frozen=True, slots=True)
class LaunchDependents(Effect):
    """`griddepcontrol.launch_dependents`: for this CTA, the next grid may begin if its launch is dependent.

    It begins when every CTA has executed this or ended. Executed again it does nothing, and it orders nothing: the next grid waits by
    `GridWait` for what this one writes.
    """

    opcode = "griddepcontrol.launch_dependents"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Nothing: when the next grid begins is for its own run to try out."""


@dataclass(frozen=True, slots=True)
class GridWait(Effect):
    """`griddepcontrol.wait`: wait until the grids that this launch depends on have ended, and their memory accesses are seen.

    In a launch that is not dependent it goes on at once.
    """

    opcode = "griddepcontrol.wait"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.grid_wait()


@dataclass(frozen=True, slots=True)
class SetMaxRegisters(Effect):
    """`setmaxnreg.inc/dec.sync.aligned.u32 count`: give back or take registers, for a whole warpgroup."""

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
        """Reallocate; an increase waits for free registers."""
        return warp.set_max_registers(self.count, self.action == "inc")
