"""Protocols of the machine that executes instructions. The emulator implements them.

A shared address is `(CTA rank in cluster << 24) | offset in the CTA's window`, as on an H200. So it can have more than
the 18 bits of a matrix descriptor. The executing CTA may also use plain offsets. `mapa` gives addresses of other CTAs;
the emulator marks them with `SHARED_CLUSTER_BIT`. Global addresses have 64 bits; the emulator chooses them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.instruction import Bits

if TYPE_CHECKING:
    from louver.isa.bulk import TensorMap
    from louver.isa.wgmma import Wgmma

Space = Literal["global", "shared", "param"]

AtomicKind = Literal["u32", "s32", "u64", "f32", "f16", "bf16", "f16x2", "bf16x2"]
"""Types of atomic additions; x2 is two numbers in 32 bits."""

SHARED_CLUSTER_BIT = 1 << 31
"""Set in addresses from `mapa`. Bits 24-30 hold the CTA's rank in the cluster, bits 0-23 the offset."""

RANK_ONE = 1 << 24
"""Distance from an address in one CTA's window to the same in the next one."""

U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Suspend:
    """The warp cannot continue yet. reason: shown if nothing else can run either (deadlock)."""

    reason: str


Outcome: TypeAlias = tuple[Bits, ...] | Suspend | None
"""Outputs of an instruction in operand order, None without outputs, or a `Suspend` to try again later."""


GENERIC_PARAMETERS = 1 << 40
"""Generic addresses of parameters, less their addresses in the space `.param`."""


class WarpState(Protocol):
    """A warp of the running kernel, as instructions see it."""

    @property
    def active(self) -> Mask:
        """Lanes that execute this instruction: bool [32]."""
        ...

    def special(self, name: str) -> Bits:
        """A special register over the lanes, uint32 [32]. name: such as `%tid.x`, `%ctaid.x` or `%laneid`."""
        ...

    def shared_symbol(self, offset: Bits) -> Bits:
        """Address of a variable in shared memory, uint32 [32]. offset: in the CTA's window."""
        ...

    # --- generic-proxy memory --------------------------------------------------------------------------------------
    def load(self, space: Space, address: Bits, size: int, *, read_only: bool = False, volatile: bool = False) -> U8:
        """`size` bytes for each active lane: uint8 [32, size], zeros for inactive lanes. Checks bounds, alignment,
        writes. read_only: `.nc`, which assumes that nobody writes the bytes while the kernel runs. volatile: other CTAs
        may write them meanwhile.
        """
        ...

    def store(self, space: Space, address: Bits, data: U8, *, volatile: bool = False) -> None:
        """Store uint8 [32, size] for each active lane. volatile: other CTAs may read and write the bytes meanwhile."""

    def atomic_add(self, space: Space, address: Bits, value: Bits, kind: AtomicKind, *, returns: bool) -> Bits:
        """Add in lane order and return the old values. returns: whether the program gets them, see `atomic_update`."""
        ...

    def atomic_update(
        self, space: Space, address: Bits, value: Bits, change: Callable[[Bits, Bits], Bits], *, returns: bool
    ) -> Bits:
        """Store `change(old, value)` in lane order and return the old values. value: [32] or [count, 32].

        returns: whether the program gets the old values, so that it may wait for others.
        """
        ...

    # --- barriers --------------------------------------------------------------------------------------------------
    def mbarrier_init(self, address: Bits, count: Bits) -> None: ...

    def mbarrier_arrive(self, address: Bits, count: Bits, transaction_bytes: Bits | None) -> None:
        """Arrive `count` times. transaction_bytes: expect them first (`arrive.expect_tx`). Addresses may be remote."""

    def mbarrier_test(self, address: Bits, parity: Bits) -> Mask:
        """Lanes whose barrier has completed the phase of that parity. They see the writes of that phase."""
        ...

    def mbarrier_pause(self, address: Bits, parity: Bits) -> Suspend | None:
        """For `try_wait`: a `Suspend` while no active lane's phase is complete, None when `mbarrier_test` may be
        called. `mbarrier_test` may still be false then, as after the hardware's time limit.
        """
        ...

    def mbarrier_invalidate(self, address: Bits) -> None: ...

    def barrier_sync(self, index: int, threads: int) -> Suspend | None:
        """`barrier.sync`: None once all threads have arrived."""
        ...

    def barrier_any(self, index: int, threads: int, value: Mask) -> Mask | Suspend:
        """`barrier.red.or`: whether `value` holds in any thread, once all have arrived."""
        ...

    def warp_sync(self, mask: Bits) -> None:
        """`bar.warp.sync`: each active lane sees what the others have seen. The mask must name the active lanes."""

    def cluster_arrive(self) -> None: ...

    def cluster_wait(self) -> Suspend | None: ...

    def grid_wait(self) -> Suspend | None:
        """`griddepcontrol.wait`: None once the grids before this one have ended."""
        ...

    # --- fences ----------------------------------------------------------------------------------------------------
    def fence_proxy_async(self) -> None:
        """The active lanes' accesses of shared memory by the generic proxy become visible to the async proxy."""

    def fence_gpu(self) -> None:
        """`fence.acq_rel.gpu`: orders memory accesses around it for threads that synchronise by atomics."""

    def fence_mbarrier_init(self) -> None:
        """`fence.mbarrier_init.release.cluster`."""

    def fence_wgmma(self) -> None:
        """`wgmma.fence`: orders register accesses between the warp and wgmma."""

    # --- asynchronous copies of single threads ---------------------------------------------------------------------
    def async_copy(self, size: int, destination: Bits, source: Bits, count: Bits) -> None:
        """Start each active lane's copy from global to its own CTA's shared memory: `count` bytes, then zeros up to
        `size`. Both addresses are multiples of the size. The copy joins the thread's open group. It completes at any
        time before a wait for it ends.
        """

    def async_commit(self) -> None: ...

    def async_arrive(self, address: Bits) -> None:
        """Each active lane arrives once on the mbarrier at `address` when its copies so far are complete."""

    def async_wait(self, pending: int) -> Suspend | None:
        """Wait until each active lane's groups are complete, except the newest `pending`."""
        ...

    def async_store(self, address: Bits, data: U8, mbarrier: Bits) -> None:
        """Start each active lane's store of uint8 [32, size] to a CTA's window; the bytes complete on a barrier there.
        Both are cluster addresses of one CTA. Threads that wait for the barrier's phase see the bytes.
        """

    # --- bulk copies -----------------------------------------------------------------------------------------------
    def bulk_tensor_load(
        self, tensor_map: TensorMap, coordinates: Sequence[int], destination: int, mbarrier: int, multicast: int | None
    ) -> None:
        """Start a tiled copy from global to shared memory. Its bytes complete on `mbarrier`. coordinates: innermost
        first. multicast: None (the CTA of `destination`), or a bit mask of CTA ranks whose windows and barriers are
        written at the same offsets. One thread issues a bulk copy: several active lanes are an error.
        """

    def bulk_tensor_store(
        self, tensor_map: TensorMap, coordinates: Sequence[int], source: int, *, add: bool = False
    ) -> None:
        """Start a tiled copy from shared to global memory, or an addition there, in the thread's open bulk group."""

    def bulk_load(self, source: int, destination: int, size: int, mbarrier: int) -> None:
        """`cp.async.bulk` from global to shared memory. The size and both addresses are multiples of 16 bytes."""

    def bulk_commit(self) -> None: ...

    def bulk_wait(self, pending: int, read_only: bool) -> Suspend | None:
        """Wait until at most `pending` groups of this thread are unfinished, or with `read_only` still read sources."""
        ...

    def tensor_map(self, address: Bits) -> TensorMap:
        """The tensor map of the kernel parameter at that address."""
        ...

    # --- warpgroup products ----------------------------------------------------------------------------------------
    def wgmma(self, instruction: Wgmma, d: Bits, inputs: Sequence[Bits]) -> None:
        """Issue a warpgroup product. inputs: the operands except `d`, in operand order. The emulator collects the four
        warps and runs `instruction.meaning` when the product completes. It reads and writes the accumulators then; the
        content of `d` at issue is not used.
        """

    def wgmma_commit(self) -> None: ...

    def wgmma_wait(self, pending: int) -> Suspend | None: ...

    # --- the rest --------------------------------------------------------------------------------------------------
    def set_max_registers(self, count: int, increase: bool) -> Suspend | None: ...

    def shuffle(self, value: Bits, source_lane: Bits) -> Bits:
        """Each active lane reads `value` of `source_lane`. Reading an inactive lane is an error."""
        ...
