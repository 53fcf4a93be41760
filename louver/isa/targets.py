"""Limits of each target as data. Louver states every limit that it checks here, and nowhere else."""

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
"""Shared memory that the system reserves for each CTA (CUDA C++ Programming Guide, compute capability 8 and newer)."""

WARPS_PER_WARPGROUP = 4
WARPGROUP_THREADS = 128
"""Threads of a warpgroup: four warps. The index of the first warp is a multiple of 4."""

FP8 = ("e4m3", "e5m2")

MAX_PENDING_COPIES = 63
"""Groups of copies that a wait leaves at most. A larger number is assembled as 63, and from 256 on as its low 8 bits."""

MAX_PENDING_PRODUCTS = 7
"""Groups of wgmma that a wait leaves at most. A larger number is assembled as 7."""


@dataclass(frozen=True, slots=True)
class Target:
    """Limits of a compilation target.

    name: as in `.target`. min_ptx: least PTX ISA version that knows the target. max_shared_bytes: dynamic shared memory
    of a CTA. setmaxnreg_min, setmaxnreg_max, setmaxnreg_step: range and step of `setmaxnreg`, all 0 without it.
    max_cluster: CTAs of a cluster, 1 without clusters. bulk_copies: `cp.async.bulk` and tensor maps exist. families:
    sparse products that exist. emulated: element types whose `mma` the assembler builds from other instructions.
    registers_per_sm: 32-bit registers. registers_per_thread: registers that one thread can name. max_threads: threads
    of a CTA.
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
        """Shared memory of an SM, including the part that the system reserves."""
        return self.max_shared_bytes + CTA_SHARED_BYTES

    def shared_bytes(self, ctas: int) -> int:
        """Greatest dynamic shared memory of each of `ctas` CTAs on an SM."""
        return self.sm_shared_bytes // ctas - CTA_SHARED_BYTES

    def has(self, family: MmaFamily) -> bool:
        return family in self.families


SM_80 = Target("sm_80", (7, 0), 163 * 1024, 0, 0, 0, 1, False, ("mma.sp", "mma.sp::ordered_metadata"))
SM_90A = Target(
    "sm_90a", (8, 0), 227 * 1024, 24, 256, 8, 8, True, ("mma.sp", "mma.sp::ordered_metadata", "wgmma.sp"), FP8
)
SM_100A = Target("sm_100a", (8, 6), 227 * 1024, 24, 256, 8, 8, True, ("mma.sp::ordered_metadata", "tcgen05.sp"), FP8)
SM_120A = Target("sm_120a", (8, 7), 99 * 1024, 24, 256, 8, 8, True, ("mma.sp::ordered_metadata",))

TARGETS: dict[str, Target] = {target.name: target for target in (SM_80, SM_90A, SM_100A, SM_120A)}


def target(name: str) -> Target:
    """The target with that name. Raises ValueError for an unknown name, with the known ones."""
    if name not in TARGETS:
        raise ValueError(f"the targets are {', '.join(TARGETS)}, got {name!r}")
    return TARGETS[name]
