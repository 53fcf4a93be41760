"""Barriers of CTA and cluster, proxy fences, register reallocation, special registers, shuffles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from louver.isa.instruction import Bits, Effect, Operand, Requirement
from louver.isa.machine import Suspend, WarpState

SM90 = Requirement((8, 0), "sm_90a")

SPECIAL = ("%tid.x", "%ctaid.x", "%nctaid.x", "%laneid", "%cluster_ctarank", "%cluster_nctarank")
"""Special registers, all 32 bits."""

FULL_MASK = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Special(Effect):
    """`mov.u32 d, %name`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in SPECIAL:
            raise ValueError(f"the special registers are {', '.join(SPECIAL)}, got {self.name!r}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d."""
        return (Operand("d", "out", "b32", kind="register"),)

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "mov.u32"

    def text(self, *args: str) -> str:
        """The register's name is part of the form."""
        return f"{self.mnemonic} {args[0]}, {self.name}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Read it."""
        return (warp.special(self.name),)


@dataclass(frozen=True, slots=True)
class ShuffleIndex(Effect):
    """`shfl.sync.idx.b32 d, a, lane, 31, 0xffffffff`: `a` of another lane of the whole warp."""

    aligned: ClassVar[bool] = True

    @property
    def operands(self) -> tuple[Operand, ...]:
        """d, a, lane."""
        return Operand("d", "out", "b32", kind="register"), Operand("a", "in", "b32"), Operand("lane", "in", "b32")

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "shfl.sync.idx.b32"

    def text(self, *args: str) -> str:
        """Clamp and member mask are constants: the whole warp."""
        return f"{self.mnemonic} {', '.join(args)}, 31, {FULL_MASK:#x}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Shuffle."""
        return (warp.shuffle(inputs[0], inputs[1]),)


@dataclass(frozen=True, slots=True)
class BarrierSync(Effect):
    """`barrier.sync.aligned index, threads`: named barrier (0 to 15) of that many threads, a multiple of 32."""

    index: int
    threads: int

    aligned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.index < 16:
            raise ValueError(f"a CTA has the barriers 0 to 15, got {self.index}")
        if self.threads < 32 or self.threads % 32:
            raise ValueError(f"a barrier counts whole warps of 32 threads, got {self.threads}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode and its constants."""
        return f"barrier.sync.aligned {self.index}, {self.threads}"

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Arrive and wait."""
        suspend = warp.barrier_sync(self.index, self.threads)
        return () if suspend is None else suspend


@dataclass(frozen=True, slots=True)
class ClusterArrive(Effect):
    """`barrier.cluster.arrive.release`: arrive at the cluster's barrier."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode; not `.aligned`, since a role may have run one lane alone."""
        return "barrier.cluster.arrive.release"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Arrive."""
        warp.cluster_arrive()
        return ()


@dataclass(frozen=True, slots=True)
class ClusterWait(Effect):
    """`barrier.cluster.wait.acquire`: wait for all threads of the cluster."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "barrier.cluster.wait.acquire"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Wait."""
        suspend = warp.cluster_wait()
        return () if suspend is None else suspend


@dataclass(frozen=True, slots=True)
class FenceProxyAsync(Effect):
    """`fence.proxy.async.shared::cta`: ordinary shared-memory accesses before it are seen by bulk copies and wgmma after it."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode."""
        return "fence.proxy.async.shared::cta"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Fence."""
        warp.fence_proxy_async()
        return ()


@dataclass(frozen=True, slots=True)
class SetMaxRegisters(Effect):
    """`setmaxnreg.inc/dec.sync.aligned.u32 count`: give back or take registers, for a whole warpgroup."""

    action: Literal["inc", "dec"]
    count: int

    aligned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 24 <= self.count <= 256 or self.count % 8:
            raise ValueError(f"setmaxnreg takes a multiple of 8 from 24 to 256, got {self.count}")

    @property
    def operands(self) -> tuple[Operand, ...]:
        """None: the count is part of the form."""
        return ()

    @property
    def mnemonic(self) -> str:
        """The opcode and its constant."""
        return f"setmaxnreg.{self.action}.sync.aligned.u32 {self.count}"

    @property
    def requires(self) -> Requirement:
        """PTX 8.0, sm_90a."""
        return SM90

    def execute(self, warp: WarpState, *inputs: Bits) -> tuple[Bits, ...] | Suspend:
        """Reallocate; an increase waits for free registers."""
        suspend = warp.set_max_registers(self.count, self.action == "inc")
        return () if suspend is None else suspend


