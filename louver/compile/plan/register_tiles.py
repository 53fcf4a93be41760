"""How a library product runs as register tiles: the schedule of targets without warpgroup products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from louver.compile.plan.schedule import Schedule
from louver.isa.bulk import COPY_CHUNK
from louver.isa.instruction import LANES
from louver.isa.rule import RuleError
from louver.isa.targets import Target, target

LEAST_ROTATED = 64
"""Products of a warp's step from which its loop is rotated (`compile/lower/tiles/rotate.py`). A step of 32 was a tenth
slower so, of 64 faster (128×128 on an H200).
"""

MOST_SLOTS = 8
"""The largest number of slots of a ring. While one slot is multiplied, the others can be filled."""

OTHER_REGISTERS = 64
"""Registers of a thread that do not hold sums. They hold addresses and loads of the next step."""

REGISTERS_TOGETHER = 8
"""The GPU allocates registers of a thread in this unit (CUDA C++ Programming Guide, compute capability 8 and newer)."""

SM_WARPS = 16
"""The largest number of warps on an SM. With more warps, rings have too few slots to copy far enough ahead."""

LEAST_HALVED = 32
"""Tiles with a longer side may be halved. Smaller ones have fewer sums than other values."""

WIDEST_MULTIPLE = 16
"""The largest power of two that a kernel assumes of a size: the elements of the widest copy of 8-bit elements."""


@dataclass(frozen=True, slots=True)
class RegisterTiles:
    """A tile for each CTA, in registers. `cp.async` or bulk copies fill a ring that is as deep as shared memory allows.

    target: the target whose instructions and limits the kernel keeps to. A newer GPU may run it.
    tile_m, tile_n: output elements of a CTA along the rows of the left operand and along n, powers of two.
    tile_k: K elements of a step, a power of two.
    warps: warps of a CTA, a power of two. More are taken if threads would spill registers.
    k_multiple: a power of two that divides K. Copies along K are as wide as it allows.
    aligned_output: whether address, row pitch and row of the output are multiples of 16 bytes.
    """

    target: str
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 64
    warps: int = 8
    k_multiple: int = WIDEST_MULTIPLE
    aligned_output: bool = True

    def __post_init__(self) -> None:
        target(self.target)
        for name in ("tile_m", "tile_n", "tile_k", "warps", "k_multiple"):
            value = getattr(self, name)
            if type(value) is not int or value < 1 or value & (value - 1):
                raise RuleError(f"{name} of register tiles is a power of two, got {value!r}")
        if self.k_multiple > WIDEST_MULTIPLE:
            raise RuleError(f"k_multiple is at most {WIDEST_MULTIPLE}, got {self.k_multiple}")
        if type(self.aligned_output) is not bool:
            raise RuleError(f"aligned_output is True or False, got {self.aligned_output!r}")

    def check(self, k: int, row: int) -> None:
        """Check the sizes of a product. Raises ValueError for others than the schedule was made for.

        row: bytes of a row of the output.
        """
        if k % self.k_multiple:
            raise ValueError(
                f"the schedule takes K in multiples of {self.k_multiple}, got {k}: give it a smaller k_multiple"
            )
        if self.aligned_output and row % COPY_CHUNK:
            raise ValueError(
                f"the schedule takes output rows in multiples of {COPY_CHUNK} bytes, got {row}: give it aligned_output=False"
            )

    @property
    def half(self) -> RegisterTiles | None:
        """Half of the tile along its longer side, by as many warps; None for a tile that is too small to be divided."""
        if max(self.tile_m, self.tile_n) <= LEAST_HALVED:
            return None
        longer = "tile_m" if self.tile_m >= self.tile_n else "tile_n"
        return replace(self, **{longer: getattr(self, longer) // 2})

    def flat(self) -> dict[str, Any]:
        """All values by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        return f"RegisterTiles({', '.join(f'{name}={value!r}' for name, value in self.flat().items())})"


def ctas_of(machine: Target, registers: int, threads: int, most: int | None = None) -> int:
    """The number of CTAs that fit an SM by their registers and warps.

    registers: registers of a thread.
    threads: threads of a CTA.
    most: limit of the launch; None for no limit.
    """
    whole = -(-registers // REGISTERS_TOGETHER) * REGISTERS_TOGETHER
    found = min(machine.registers_per_sm // (whole * threads), SM_WARPS * LANES // threads)
    return found if most is None else min(found, most)


AnySchedule: TypeAlias = Schedule | RegisterTiles
"""How a library product runs: as a product of warpgroups, or as register tiles."""
