"""Limits of each target as data. Louver states every limit that it checks here, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from louver.isa.rule import RuleError

MmaFamily = Literal["mma", "mma.sp", "mma.sp::ordered_metadata", "wgmma", "wgmma.sp", "tcgen05.sp"]
"""Families of matrix products, oldest first. `mma.sp` without ordered metadata is data only: Louver emits the ordered
form everywhere, because the assembler emulates the other one from sm_100 on.
"""

Support = Literal["native", "emulated"]

BulkSpace = Literal["shared::cluster", "shared::cta"]

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
FP6_FP4 = ("e2m3", "e3m2", "e2m1")
"""Types of 6 and 4 bits, each in the container that the unit reads."""
FP8_FP6_FP4 = (*FP8, *FP6_FP4)
"""Types of containers of 8 bits, any two of which multiply."""

_WIDE = ("f16", "bf16", "tf32", "s8", "u8")
_NARROW = ("s4", "u4")

MAX_PENDING_COPIES = 63
"""Groups of copies that a wait leaves at most. A larger number is assembled as 63, and from 256 on as its low 8 bits."""

MAX_PENDING_PRODUCTS = 7
"""Groups of wgmma that a wait leaves at most. A larger number is assembled as 7."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Products of a family that a target has, by the element type of A.

    native: types that one machine instruction multiplies. emulated: types that the assembler accepts and builds from
    many other instructions. kind: of the PTX mnemonic, `kind::f8f6f4` say; "" for forms without one.
    """

    family: MmaFamily
    native: tuple[str, ...]
    emulated: tuple[str, ...] = ()
    kind: str = ""

    def __post_init__(self) -> None:
        if twice := set(self.native) & set(self.emulated):
            raise RuleError(f"{self.family} is native or emulated, got both for {', '.join(sorted(twice))}")

    @property
    def name(self) -> str:
        """Family and kind."""
        return unit_name(self.family, self.kind)


def unit_name(family: MmaFamily, kind: str) -> str:
    """Family and kind, as PTX joins them."""
    return f"{family}.kind::{kind}" if kind else family


@dataclass(frozen=True, slots=True)
class Target:
    """Limits of a compilation target.

    name: as in `.target`. min_ptx: least PTX ISA version that knows the target. max_shared_bytes: dynamic shared memory
    of a CTA. cards: GPUs of the target. units: its products. sm_threads, sm_ctas: threads and CTAs that an SM holds.
    setmaxnreg_min, setmaxnreg_max, setmaxnreg_step: range and step of `setmaxnreg`, all 0 without it. max_cluster: CTAs
    of a cluster, 1 without clusters. bulk_copies: destination of `cp.async.bulk` without multicast, None without bulk
    copies and tensor maps. registers_per_sm: 32-bit registers. registers_per_thread: registers that one thread can
    name. max_threads: threads of a CTA. measured: the card of the benchmark records, "" if there are none.
    Sources: CUDA C++ Programming Guide, Compute Capabilities; cuda_occupancy.h; PTX ISA, setmaxnreg and the target notes
    of each product. ptxas confirms each row (tests/cpu/isa/test_targets.py).
    """

    name: str
    min_ptx: tuple[int, int]
    max_shared_bytes: int
    cards: str
    units: tuple[Unit, ...]
    sm_threads: int = 2048
    sm_ctas: int = 32
    setmaxnreg_min: int = 0
    setmaxnreg_max: int = 0
    setmaxnreg_step: int = 0
    max_cluster: int = 1
    bulk_copies: BulkSpace | None = None
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    max_threads: int = 1024
    measured: str = ""

    def __post_init__(self) -> None:
        if not self.name.startswith("sm_"):
            raise RuleError(f"a target is named as PTX names it, sm_90a say, got {self.name!r}")
        if self.max_shared_bytes % 1024:
            raise RuleError(f"{self.name}: shared memory is given in whole KiB, got {self.max_shared_bytes} bytes")

    @property
    def number(self) -> int:
        """The compute capability as PTX writes it: 90 of sm_90a."""
        return _split(self.name)[0]

    @property
    def sm_shared_bytes(self) -> int:
        """Shared memory of an SM that CTAs of the greatest size share, including the part that the system reserves."""
        return self.max_shared_bytes + CTA_SHARED_BYTES

    def shared_bytes(self, ctas: int) -> int:
        """Greatest dynamic shared memory of each of `ctas` CTAs on an SM."""
        return self.sm_shared_bytes // ctas - CTA_SHARED_BYTES

    def has(self, family: MmaFamily) -> bool:
        """Whether it has products of the family, in any type."""
        return any(unit.family == family for unit in self.units)

    def support(self, family: MmaFamily, element: str, kind: str = "") -> Support | None:
        """How it multiplies an A of type `element`; None if its assembler refuses."""
        for unit in self.units:
            if (unit.family, unit.kind) == (family, kind):
                return "native" if element in unit.native else "emulated" if element in unit.emulated else None
        return None

    def provides(self, needed: str) -> bool:
        """Whether it has what target `needed` has. Source: PTX ISA, .target.

        A plain target's features stay in all later ones, those of suffix f in its family (the same number but for the
        last digit), with suffix f or a. Features of suffix a are of one target by the PTX ISA, but ptxas takes those of
        the first target of a family for the later ones: those of sm_120a for sm_121a.
        """
        number, suffix = _split(self.name)
        least, feature = _split(needed)
        if feature:
            return suffix in ("a", feature) and number // 10 == least // 10 and number >= least
        return number >= least


def _split(name: str) -> tuple[int, str]:
    """Number and suffix of a target's name."""
    digits = name.removeprefix("sm_").rstrip("af")
    return int(digits), name.removeprefix(f"sm_{digits}")


_ORDERED: MmaFamily = "mma.sp::ordered_metadata"
_AMPERE = tuple(Unit(family, (*_WIDE, *_NARROW)) for family in ("mma", "mma.sp", _ORDERED))
_ADA = tuple(Unit(family, (*_WIDE, *FP8, *_NARROW)) for family in ("mma", "mma.sp", _ORDERED))
_HOPPER = (
    *(Unit(family, _WIDE, (*FP8, *_NARROW)) for family in ("mma", "mma.sp", _ORDERED)),
    *(Unit(family, (*_WIDE, *FP8)) for family in ("wgmma", "wgmma.sp")),
)
_TENSOR_MEMORY_FAMILY = (
    Unit("mma", _WIDE, (*FP8, *_NARROW)),
    Unit("mma.sp", ("bf16", "tf32"), ("f16", "s8", "u8", *FP8, *_NARROW)),
    Unit(_ORDERED, _WIDE, (*FP8, *_NARROW)),
    Unit(_ORDERED, (), FP8, "f8f6f4"),
    Unit("tcgen05.sp", ("f16", "bf16"), kind="f16"),
    Unit("tcgen05.sp", ("tf32",), kind="tf32"),
    Unit("tcgen05.sp", FP8_FP6_FP4, kind="f8f6f4"),
    Unit("tcgen05.sp", FP8_FP6_FP4, kind="mxf8f6f4"),
)
_TENSOR_MEMORY = (
    *_TENSOR_MEMORY_FAMILY,
    Unit("tcgen05.sp", ("e2m1",), kind="mxf4"),
    Unit("tcgen05.sp", ("e2m1",), kind="mxf4nvf4"),
)
_INTEGER_TENSOR_MEMORY = (*_TENSOR_MEMORY, Unit("tcgen05.sp", ("s8", "u8"), kind="i8"))
_CONSUMER = (
    Unit("mma", (*_WIDE, *FP8), _NARROW),
    Unit("mma.sp", ("bf16", "tf32", *FP8), ("f16", "s8", "u8", *_NARROW)),
    Unit(_ORDERED, (*_WIDE, *FP8), _NARROW),
)
_CONSUMER_FAMILY = (*_CONSUMER, *(Unit(_ORDERED, FP8_FP6_FP4, kind=kind) for kind in ("f8f6f4", "mxf8f6f4")))
_CONSUMER_ALL = (*_CONSUMER_FAMILY, *(Unit(_ORDERED, ("e2m1",), kind=kind) for kind in ("mxf4", "mxf4nvf4")))

SM_80 = Target("sm_80", (7, 0), 163 * 1024, "A100, A30", _AMPERE)
_SM_86 = Target("sm_86", (7, 1), 99 * 1024, "RTX 30, A10, A40, RTX A6000", _AMPERE, sm_threads=1536, sm_ctas=16)
_SM_87 = replace(_SM_86, name="sm_87", min_ptx=(7, 4), max_shared_bytes=163 * 1024, cards="Jetson Orin")
_SM_88 = replace(_SM_86, name="sm_88", min_ptx=(9, 0), cards="")
_SM_89 = replace(_SM_86, name="sm_89", min_ptx=(7, 8), cards="RTX 40, L4, L40, L40S", units=_ADA, sm_ctas=24)
SM_90A = Target(
    "sm_90a",
    (8, 0),
    227 * 1024,
    "H100, H200, GH200",
    _HOPPER,
    setmaxnreg_min=24,
    setmaxnreg_max=256,
    setmaxnreg_step=8,
    max_cluster=8,
    bulk_copies="shared::cluster",
    measured="H200",
)
_SM_100A = replace(
    SM_90A, name="sm_100a", min_ptx=(8, 6), cards="B200, GB200", units=_INTEGER_TENSOR_MEMORY, measured=""
)
_SM_103A = replace(_SM_100A, name="sm_103a", min_ptx=(8, 8), cards="B300, GB300", units=_TENSOR_MEMORY)
_SM_107A = replace(_SM_103A, name="sm_107a", min_ptx=(9, 4), cards="", sm_threads=1024, sm_ctas=16)
_SM_110A = replace(_SM_100A, name="sm_110a", min_ptx=(9, 0), cards="Jetson Thor", sm_threads=1536, sm_ctas=24)
_SM_120A = replace(
    SM_90A,
    name="sm_120a",
    min_ptx=(8, 7),
    max_shared_bytes=99 * 1024,
    cards="RTX 50, RTX PRO Blackwell",
    units=_CONSUMER_ALL,
    sm_threads=1536,
    sm_ctas=24,
    bulk_copies="shared::cta",
    measured="",
)
_SM_120 = replace(_SM_120A, name="sm_120", units=_CONSUMER, setmaxnreg_min=0, setmaxnreg_max=0, setmaxnreg_step=0)
_SM_121A = replace(_SM_120A, name="sm_121a", min_ptx=(8, 8), cards="DGX Spark (GB10)")


def _of_family(machine: Target, min_ptx: tuple[int, int], units: tuple[Unit, ...]) -> Target:
    """The target of suffix f beside one of suffix a: code for it runs on later cards of the family too."""
    return replace(machine, name=machine.name.replace("a", "f"), min_ptx=min_ptx, units=units)


TARGETS: dict[str, Target] = {
    machine.name: machine
    for machine in (
        SM_80,
        _SM_86,
        _SM_87,
        _SM_88,
        _SM_89,
        SM_90A,
        _SM_100A,
        _of_family(_SM_100A, (8, 8), _TENSOR_MEMORY_FAMILY),
        _SM_103A,
        _of_family(_SM_103A, (8, 8), _TENSOR_MEMORY_FAMILY),
        _SM_107A,
        _of_family(_SM_107A, (9, 4), _TENSOR_MEMORY_FAMILY),
        _SM_110A,
        _of_family(_SM_110A, (9, 0), _TENSOR_MEMORY_FAMILY),
        _SM_120,
        _SM_120A,
        _of_family(_SM_120A, (8, 8), _CONSUMER_FAMILY),
        _SM_121A,
        _of_family(_SM_121A, (8, 8), _CONSUMER_FAMILY),
    )
}
"""The targets by name, by their numbers."""


def target(name: str) -> Target:
    """The target with that name. Raises ValueError for an unknown name, with the known ones."""
    if name not in TARGETS:
        raise RuleError(f"the targets are {', '.join(TARGETS)}, got {name!r}")
    return TARGETS[name]
