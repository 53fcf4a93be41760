"""The limits of each target, as data: every limit that Louver checks is stated here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MmaFamily = Literal["mma.sp", "mma.sp::ordered_metadata", "wgmma.sp", "tcgen05.sp"]
"""Families of sparse matrix products, oldest first. `wgmma.sp` implies the dense `wgmma`."""

MBARRIER_MAX_TRANSACTION_BYTES = (1 << 20) - 1
"""Bytes that one mbarrier phase can expect (PTX ISA, tx-count: the range of the pending count)."""

MBARRIER_MAX_ARRIVALS = (1 << 20) - 1
"""Arrivals that one mbarrier phase can expect."""

TENSOR_MAP_MAX_BOX = 256
"""Elements per dimension of a tensor map's box (CUDA driver API, cuTensorMapEncodeTiled)."""

CTA_SHARED_BYTES = 1024
"""Shared memory that the system takes of each CTA (CUDA C++ Programming Guide, compute capability 8 and newer)."""

WARPS_PER_WARPGROUP = 4
"""Warps of a warpgroup."""

WARPGROUP_THREADS = 128
"""Threads of a warpgroup: four warps, the first with a warp index that is a multiple of 4."""


FP8 = ("e4m3", "e5m2")
"""8-bit floats."""


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target's limits.

    name: as `.target` has it. min_ptx: the least PTX ISA version that knows it. max_shared_bytes: dynamic shared memory of
    a CTA. registers_per_sm, registers_per_thread: 32-bit registers; registers_per_thread is what one thread may name.
    max_threads: threads of a CTA. setmaxnreg_min, setmaxnreg_max, setmaxnreg_step: range and granularity of `setmaxnreg`,
    all 0 where the target lacks it. max_cluster: CTAs of a cluster, 1 where the target lacks clusters.
    bulk_copies: `cp.async.bulk` and tensor maps exist. families: the sparse products that exist. emulated: element types whose `mma`
    the assembler makes of other instructions.
    Sources: CUDA C++ Programming Guide, Compute Capabilities; PTX ISA, setmaxnreg and the target notes of each product.
    """

    name: str
    min_ptx: tuple[int, int]
    max_shared_bytes: int
    setmaxnreg_min: int
    setmaxnreg_max: int
    setmaxnreg_step: int
    max_cluster: int
    bulk_copies: bool
    families: tuple[MmaFamily, ...]
    emulated: tuple[str, ...] = ()
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    max_threads: int = 1024

    def __post_init__(self) -> None:
        if not self.name.startswith("sm_"):
            raise ValueError(f"a target is named as PTX names it, sm_90a say, got {self.name!r}")
        if self.max_shared_bytes % 1024:
            raise ValueError(f"{self.name}: shared memory is given in whole KiB, got {self.max_shared_bytes} bytes")

    @property
    def sm_shared_bytes(self) -> int:
        """Shared memory of an SM, what the system takes included."""
        return self.max_shared_bytes + CTA_SHARED_BYTES

    def shared_bytes(self, ctas: int) -> int:
        """The dynamic shared memory that each of so many CTAs on an SM may have."""
        return self.sm_shared_bytes // ctas - CTA_SHARED_BYTES

    def has(self, family: MmaFamily) -> bool:
        """Whether the target has that family of sparse products."""
        return family in self.families


SM_80 = Target("sm_80", (7, 0), 163 * 1024, 0, 0, 0, 1, False, ("mma.sp", "mma.sp::ordered_metadata"))
SM_90A = Target(
    "sm_90a", (8, 0), 227 * 1024, 24, 256, 8, 8, True, ("mma.sp", "mma.sp::ordered_metadata", "wgmma.sp"), FP8
)
SM_100A = Target("sm_100a", (8, 6), 227 * 1024, 24, 256, 8, 8, True, ("mma.sp::ordered_metadata", "tcgen05.sp"), FP8)
SM_120A = Target("sm_120a", (8, 7), 99 * 1024, 24, 256, 8, 8, True, ("mma.sp::ordered_metadata",))

TARGETS: dict[str, Target] = {target.name: target for target in (SM_80, SM_90A, SM_100A, SM_120A)}
"""The targets that Louver knows, by name."""


def target(name: str) -> Target:
    """The target of that name. Raises ValueError for an unknown one, naming those that are known."""
    if name not in TARGETS:
        raise ValueError(f"the targets are {', '.join(TARGETS)}, got {name!r}")
    return TARGETS[name]
