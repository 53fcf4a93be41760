"""mbarriers: init, arrive, expect, wait. Addresses are shared-memory byte addresses, multiples of 8.

Default semantics throughout (release at CTA scope for arrivals, acquire for waits): at cluster scope ptxas puts a barrier of the
whole GPU's memory before each arrival and drops the L1 cache after each wait, which halves a main loop's speed even once a step;
rings fed by multicast do without. Source: PTX ISA, Parallel Synchronization, mbarrier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from louver.isa.instruction import LANES, SM90, Bits, Effect, Operand, Pure
from louver.isa.machine import RANK_ONE, SHARED_CLUSTER_BIT, Outcome, WarpState


def _address(name: str = "addr") -> Operand:
    return Operand(name, "in", "b32", kind="address")


@dataclass(frozen=True, slots=True)
class MbarrierInit(Effect):
    """`mbarrier.init.shared::cta.b64 [addr], count`: arrivals that complete a phase."""

    opcode = "mbarrier.init.shared::cta.b64"
    takes = (_address(), Operand("count", "in", "b32"))
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.mbarrier_init(inputs[0], inputs[1])


def _space(remote: bool) -> str:
    return "shared::cluster" if remote else "shared::cta"


@dataclass(frozen=True, slots=True)
class MbarrierArrive(Effect):
    """`mbarrier.arrive`: one arrival, or with `counted` as many as the operand says.

    remote: the barrier is another CTA's of the cluster, its address made by `MapShared`.
    """

    remote: bool = False
    counted: bool = False

    needs = SM90

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (_address(), Operand("count", "in", "b32")) if self.counted else (_address(),)

    @property
    def mnemonic(self) -> str:
        return f"mbarrier.arrive.{_space(self.remote)}.b64"

    def text(self, *args: str) -> str:
        """The state that a local arrival returns is not used: `_`."""
        return f"{self.mnemonic} _, {', '.join(args)}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        count = inputs[1] if self.counted else np.ones(LANES, np.uint32)
        warp.mbarrier_arrive(inputs[0], count, None)


@dataclass(frozen=True, slots=True)
class MbarrierArriveExpect(Effect):
    """`mbarrier.arrive.expect_tx [addr], bytes`: expect bytes of asynchronous copies in this phase, and arrive once.

    remote: the barrier is another CTA's of the cluster, its address made by `MapShared`.
    """

    remote: bool = False

    takes = (_address(), Operand("bytes", "in", "b32"))
    needs = SM90

    @property
    def mnemonic(self) -> str:
        return f"mbarrier.arrive.expect_tx.{_space(self.remote)}.b64"

    def text(self, *args: str) -> str:
        """The returned state is not used."""
        return f"{self.mnemonic} _, {', '.join(args)}"

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Expect and arrive once."""
        warp.mbarrier_arrive(inputs[0], np.ones(LANES, np.uint32), inputs[1])


@dataclass(frozen=True, slots=True)
class MbarrierTryWait(Effect):
    """`mbarrier.try_wait.parity p, [addr], parity`: true once the phase of that parity is complete; may pause meanwhile."""

    opcode = "mbarrier.try_wait.parity.shared::cta.b64"
    takes = (Operand("p", "out", "pred", kind="register"), _address(), Operand("parity", "in", "b32"))
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        """Pause while nothing is complete and other work can run, then test."""
        pause = warp.mbarrier_pause(inputs[0], inputs[1])
        return pause if pause is not None else (warp.mbarrier_test(inputs[0], inputs[1]),)


@dataclass(frozen=True, slots=True)
class MbarrierInvalidate(Effect):
    """`mbarrier.inval [addr]`: the barrier's bytes are ordinary memory again."""

    opcode = "mbarrier.inval.shared::cta.b64"
    takes = (_address(),)
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.mbarrier_invalidate(inputs[0])


@dataclass(frozen=True, slots=True)
class FenceMbarrierInit(Effect):
    """`fence.mbarrier_init.release.cluster`: makes initialised barriers visible to the cluster and the async proxy."""

    opcode = "fence.mbarrier_init.release.cluster"
    needs = SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> Outcome:
        warp.fence_mbarrier_init()


@dataclass(frozen=True, slots=True)
class MapShared(Pure):
    """`mapa.shared::cluster.u32 d, a, rank`: the address of `a` in another CTA's window."""

    opcode = "mapa.shared::cluster.u32"
    takes = (Operand("d", "out", "b32", kind="register"), Operand("a", "in", "b32"), Operand("rank", "in", "b32"))
    needs = SM90

    def compute(self, *inputs: Bits) -> tuple[Bits, ...]:
        """The machine's form of a cluster address."""
        address, rank = inputs
        offset = address & np.uint32(RANK_ONE - 1)
        return (offset | rank * np.uint32(RANK_ONE) | np.uint32(SHARED_CLUSTER_BIT),)
