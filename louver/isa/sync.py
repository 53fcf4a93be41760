"""Barriers of warps, CTAs and clusters, mbarriers, proxy fences, order between grids, register reallocation.

Addresses of mbarriers are in bytes of shared memory, multiples of 8. Arrivals release and waits acquire at CTA scope, the default.
At cluster scope, ptxas emits a memory barrier of the whole GPU before each arrival and drops the L1 cache after each wait.
Even once a step, this halves the speed of a main loop. Rings fed by multicast do not need cluster scope.

Source: PTX ISA, Parallel Synchronization and Communication (also mbarrier and griddepcontrol); Miscellaneous (setmaxnreg).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from louver.isa.instruction import (
    LANES,
    SM90,
    Bits,
    Effect,
    Operand,
    Pure,
    Requirement,
    output,
    pointer,
    reads,
    register,
)
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, Outcome, Suspend, WarpState
from louver.isa.rule import RuleError
from louver.isa.targets import MBARRIER_MAX_ARRIVALS, SM_90A

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
        raise RuleError(f"a CTA has the barriers 0 to {NAMED_BARRIERS - 1}, got {index}")
    if threads < LANES or threads % LANES:
        raise RuleError(f"a barrier counts whole warps of {LANES} threads, got {threads}")


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
            raise RuleError(f"setmaxnreg takes a multiple of {step} from {low} to {high}, got {self.count}")

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        return warp.set_max_registers(self.count, self.action == "inc")


_ADDRESS = pointer("addr", "b32")
_COUNT = Operand("count", "in", "b32", values=range(1, MBARRIER_MAX_ARRIVALS + 1))
"""Arrivals at an mbarrier."""


@dataclass(frozen=True, slots=True)
class MbarrierInit(Effect):
    """`mbarrier.init.shared::cta.b64 [addr], count`: `count` arrivals complete a phase."""

    opcode = "mbarrier.init.shared::cta.b64"
    takes = (_ADDRESS, _COUNT)
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.mbarrier_init(inputs[0], inputs[1])


def _space(remote: bool) -> str:
    return "shared::cluster" if remote else "shared::cta"


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Effect):
    """`mbarrier.arrive`: one arrival, or with `counted` as many as the operand says.

    remote: the barrier is in another CTA of the cluster; `MapShared` makes its address.
    """

    remote: bool = False
    counted: bool = False

    needs = SM90

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (_ADDRESS, _COUNT) if self.counted else (_ADDRESS,)

    @property
    def mnemonic(self) -> str:
        return f"mbarrier.arrive.{_space(self.remote)}.b64"

    def text(self, *args: str) -> str:
        """`_`: the returned state is not used."""
        return f"{self.mnemonic} _, {', '.join(args)}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        count = inputs[1] if self.counted else np.ones(LANES, np.uint32)
        warp.mbarrier_arrive(inputs[0], count, None)


@dataclass(frozen=True, slots=True)
class MbarrierArriveExpect(Effect):
    """`mbarrier.arrive.expect_tx [addr], bytes`: expect bytes of asynchronous copies in this phase, and arrive once.

    remote: as in `MbarrierArrive`.
    """

    remote: bool = False

    takes = (_ADDRESS, *reads("b32", "bytes"))
    needs = SM90

    @property
    def mnemonic(self) -> str:
        return f"mbarrier.arrive.expect_tx.{_space(self.remote)}.b64"

    def text(self, *args: str) -> str:
        return f"{self.mnemonic} _, {', '.join(args)}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.mbarrier_arrive(inputs[0], np.ones(LANES, np.uint32), inputs[1])


@dataclass(frozen=True, slots=True)
class MbarrierTryWait(Effect):
    """`mbarrier.try_wait.parity p, [addr], parity`: true once the phase of that parity is complete; may pause."""

    opcode = "mbarrier.try_wait.parity.shared::cta.b64"
    takes = (output("pred", "p"), _ADDRESS, Operand("parity", "in", "b32", values=range(2)))
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        pause = warp.mbarrier_pause(inputs[0], inputs[1])
        return pause if pause is not None else (warp.mbarrier_test(inputs[0], inputs[1]),)


@dataclass(frozen=True, slots=True)
class MbarrierInvalidate(Effect):
    """`mbarrier.inval [addr]`: the bytes of the barrier become ordinary memory again."""

    opcode = "mbarrier.inval.shared::cta.b64"
    takes = (_ADDRESS,)
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.mbarrier_invalidate(inputs[0])


@dataclass(frozen=True, slots=True)
class FenceMbarrierInit(Effect):
    """`fence.mbarrier_init.release.cluster`: make initialised barriers visible to the cluster and the async proxy."""

    opcode = "fence.mbarrier_init.release.cluster"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.fence_mbarrier_init()


@dataclass(frozen=True, slots=True)
class MapShared(Pure):
    """`mapa.shared::cluster.u32 d, a, rank`: the address of `a` in the window of the CTA with that rank."""

    opcode = "mapa.shared::cluster.u32"
    takes = (output("b32"), *reads("b32", "a", "rank"))
    needs = SM90

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        address, rank = inputs
        offset = address & np.uint32(RANK_ONE - 1)
        return (offset | rank * np.uint32(RANK_ONE) | np.uint32(SHARED_CLUSTER_BIT),)
