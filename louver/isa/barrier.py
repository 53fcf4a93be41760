"""mbarriers: init, arrive, expect, wait. Addresses are byte addresses in shared memory, multiples of 8.

Arrivals release and waits acquire at CTA scope, the default. At cluster scope, ptxas emits a memory barrier of the
whole GPU before each arrival and drops the L1 cache after each wait. Even once a step, this halves the speed of a main
loop. Rings fed by multicast do not need cluster scope. Source: PTX ISA, Parallel Synchronization, mbarrier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.isa.instruction import LANES, SM90, Bits, Effect, Operand, Pure, output, pointer, reads
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, Outcome, WarpState
from louver.isa.targets import MBARRIER_MAX_ARRIVALS

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
