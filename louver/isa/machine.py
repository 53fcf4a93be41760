"""Protocols of the machine that an instruction's meaning runs on. The emulator implements them.

Addresses: a variable in shared memory has the address `(CTA rank in cluster << 24) | offset in the CTA's window`, as seen on an
H200, so that an address is more than the 18 bits that a matrix descriptor takes. Plain offsets are the executing CTA's too.
`mapa` makes the same of another CTA's (the emulator tells them apart by `SHARED_CLUSTER_BIT`). Global addresses are 64-bit and
made by the emulator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from louver.isa.instruction import Bits

if TYPE_CHECKING:
    from louver.isa.tensormap import TensorMap
    from louver.isa.wgmma import Wgmma

Space = Literal["global", "shared", "param"]

AtomicKind = Literal["u32", "s32", "u64", "f32", "f16", "bf16", "f16x2", "bf16x2"]
"""Types that memory adds to; x2: two in 32 bits."""

SHARED_CLUSTER_BIT = 1 << 31
"""Set in an address made by `mapa`: bits 24-30 then hold the CTA's rank in the cluster, bits 0-23 the offset."""

RANK_ONE = 1 << 24
"""From an address in one CTA's window to the same in the next one's."""

U8 = NDArray[np.uint8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Suspend:
    """The warp cannot go on yet. `reason` is shown when nothing else can run either (deadlock)."""

    reason: str


Outcome: TypeAlias = tuple[Bits, ...] | Suspend | None
"""The outputs of an instruction in operand order, None where it has none, or a `Suspend` to be tried again later."""


class WarpState(Protocol):
    """One warp of the running kernel, as instructions see it."""

    @property
    def active(self) -> Mask:
        """Lanes that execute this instruction: bool [32]."""
        ...

    def special(self, name: str) -> Bits:
        """A special register over the lanes, uint32 [32]: `%tid.x`, `%ctaid.x`, `%nctaid.x`, `%laneid`, `%cluster_ctarank`…"""
        ...

    def shared_symbol(self, offset: Bits) -> Bits:
        """The address of a variable in shared memory at that offset of the CTA's window: uint32 [32]."""
        ...

    # --- generic-proxy memory --------------------------------------------------------------------------------------
    def load(self, space: Space, address: Bits, size: int, *, read_only: bool = False) -> U8:
        """`size` bytes for each active lane: uint8 [32, size]; inactive lanes read zeros. Checks bounds, alignment, initialisation.

        read_only: `.nc`, which takes for granted that nobody writes the bytes while the kernel runs.
        """
        ...

    def store(self, space: Space, address: Bits, data: U8) -> None:
        """Store uint8 [32, size] for each active lane."""

    def atomic_add(self, space: Space, address: Bits, value: Bits, kind: AtomicKind) -> Bits:
        """Add in lane order and return the old values."""
        ...

    def atomic_update(self, space: Space, address: Bits, value: Bits, change: Callable[[Bits, Bits], Bits]) -> Bits:
        """Store what `change` makes of memory and value, registers [1] each, in lane order, and return the old values."""
        ...

    # --- barriers --------------------------------------------------------------------------------------------------
    def mbarrier_init(self, address: Bits, count: Bits) -> None: ...

    def mbarrier_arrive(self, address: Bits, count: Bits, transaction_bytes: Bits | None) -> None:
        """Arrive `count` times; with `transaction_bytes`, expect those first (`arrive.expect_tx`). Remote addresses allowed."""

    def mbarrier_test(self, address: Bits, parity: Bits) -> Mask:
        """True for the lanes whose barrier has completed the phase of that parity. The completing phase's writes become visible."""
        ...

    def mbarrier_pause(self, address: Bits, parity: Bits) -> Suspend | None:
        """For `try_wait`: a `Suspend` while no active lane's phase is complete; None once `mbarrier_test` is to be asked.

        `mbarrier_test` may still say no then, as after the hardware's time limit.
        """
        ...

    def mbarrier_invalidate(self, address: Bits) -> None: ...

    def barrier_sync(self, index: int, threads: int) -> Suspend | None:
        """Named barrier `bar.sync index, threads`; None once all have arrived."""
        ...

    def barrier_any(self, index: int, threads: int, value: Mask) -> Mask | Suspend:
        """Named barrier `barrier.red.or`: whether `value` holds for any of the threads, once all have arrived."""
        ...

    def warp_sync(self) -> None:
        """`bar.warp.sync`: the active lanes see what each of them has seen."""

    def cluster_arrive(self) -> None: ...

    def cluster_wait(self) -> Suspend | None: ...

    def grid_wait(self) -> Suspend | None:
        """`griddepcontrol.wait`; None once the grids before this one have ended."""
        ...

    # --- fences ----------------------------------------------------------------------------------------------------
    def fence_proxy_async(self) -> None:
        """Generic-proxy shared-memory accesses of the active lanes become visible to the async proxy."""

    def fence_gpu(self) -> None:
        """`fence.acq_rel.gpu`: orders memory accesses around it for those who are reached by atomics."""

    def fence_mbarrier_init(self) -> None:
        """`fence.mbarrier_init.release.cluster`."""

    def fence_wgmma(self) -> None:
        """`wgmma.fence`: orders register accesses between the warp and wgmma."""

    # --- asynchronous copies of single threads ---------------------------------------------------------------------
    def async_copy(self, size: int, destination: Bits, source: Bits, count: Bits) -> None:
        """Start a copy of `size` bytes a lane, global to own shared memory: `count` of them, then zeros.

        Both addresses are multiples of the size. It is part of the thread's open group, and done at any time until it is waited for.
        """

    def async_commit(self) -> None: ...

    def async_arrive(self, address: Bits) -> None:
        """One arrival of each active lane on the mbarrier at `address`, when the lane's copies so far are complete."""

    def async_wait(self, pending: int) -> Suspend | None:
        """Wait until each active lane's groups but its newest `pending` are complete."""
        ...

    def async_store(self, address: Bits, data: U8, mbarrier: Bits) -> None:
        """Start a store of uint8 [32, size], those of each active lane to a CTA's window, then complete on a barrier there.

        Both addresses are cluster addresses, and name one CTA. What waits for the barrier's phase sees the bytes.
        """

    # --- bulk copies -----------------------------------------------------------------------------------------------
    def bulk_tensor_load(
        self, tensor_map: TensorMap, coordinates: Sequence[int], destination: int, mbarrier: int, multicast: int | None
    ) -> None:
        """Start a tiled copy global to shared, innermost coordinate first, completing transaction bytes on `mbarrier`.

        multicast: None (own CTA), or a bit mask of CTA ranks whose windows and barriers (same offsets) are written.
        One thread issues a bulk copy: more than one active lane is an error.
        """

    def bulk_tensor_store(
        self, tensor_map: TensorMap, coordinates: Sequence[int], source: int, *, add: bool = False
    ) -> None:
        """Start a tiled copy shared to global, or a sum there; part of the thread's open bulk group."""

    def bulk_load(self, source: int, destination: int, size: int, mbarrier: int) -> None:
        """`cp.async.bulk` global to shared: size and both addresses multiples of 16 bytes."""

    def bulk_commit(self) -> None: ...

    def bulk_wait(self, pending: int, read_only: bool) -> Suspend | None:
        """Wait until at most `pending` groups of this thread are unfinished (`read_only`: until their sources were read)."""
        ...

    def tensor_map(self, address: Bits) -> TensorMap:
        """The tensor map behind a kernel parameter's address."""
        ...

    # --- warpgroup products ----------------------------------------------------------------------------------------
    def wgmma(self, instruction: Wgmma, d: Bits, inputs: Sequence[Bits]) -> None:
        """Issue a warpgroup product: `d` names the accumulators by content, `inputs` the other operands in operand order.

        The emulator collects the four warps, runs `instruction.meaning` when it decides that the product completes,
        and writes the accumulators back to the registers that this instruction names as "inout". It reads the
        accumulators then too: the content of `d` at issue is not used.
        """

    def wgmma_commit(self) -> None: ...

    def wgmma_wait(self, pending: int) -> Suspend | None: ...

    # --- the rest --------------------------------------------------------------------------------------------------
    def set_max_registers(self, count: int, increase: bool) -> Suspend | None: ...

    def shuffle(self, value: Bits, source_lane: Bits) -> Bits:
        """Each active lane reads `value` of `source_lane`; reading an inactive lane is an error."""
        ...
