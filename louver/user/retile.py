"""A product's tile by the sizes of a call. A kernel that computes each tile once may run with another tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from louver.choose.configure import choose_for
from louver.choose.demand import Demand
from louver.compile.plan.schedule import Schedule
from louver.ir.polynomial import Numbers, with_grid
from louver.ir.product import ProductNest
from louver.isa.targets import Target
from louver.user.arguments import Call

SM_COUNT = 132
"""The SM count to assume without a GPU: an H200's."""

LONG = 8192
"""The least K that programs share in place of a product. A guess from one kernel (`leaves_idle`)."""

IDLE = 4
"""How many times more SMs they then use, at least. A guess, too."""


def schedule_of(
    nest: ProductNest, sizes: tuple[int, int, int, int], target: Target, sm_count: int, *, aligned_output: bool
) -> Schedule | None:
    """The library's schedule. sizes: m, n, k and entries. None if the reads depend on the kernel's own tile."""
    if nest.a.index is not None:
        return None
    return choose_for(Demand.of_nest(nest), sizes, target, sm_count, aligned_output=aligned_output)


def is_decided(nest: ProductNest, schedule: Schedule, sizes: tuple[int, int, int, int], sm_count: int) -> bool:
    """Whether the library's schedule of a product leaves nothing to compare: any other description of the product has the
    same schedule, and register tiles cannot use more SMs. schedule: of the sizes m, n, k and entries.
    """
    m, n, _, entries = sizes
    # Kernels that add to memory may have a form that stores.
    return not nest.store.add and -(-m // schedule.tile.m) * -(-n // schedule.tile.n) * entries >= sm_count


def leaves_idle(
    nest: ProductNest, schedule: Schedule, sizes: tuple[int, int, int, int], programs: int, sm_count: int
) -> bool:
    """Whether a product uses less than a quarter of the SMs that the user's programs use, because these share a long K, and its few
    tiles sum all of it: 256×65536×256 of f32 took 150 us on an H200, and 124 us dense by 128 programs. sizes: m, n, k and entries.
    """
    m, n, k, entries = sizes
    tiles = -(-m // schedule.tile.m) * -(-n // schedule.tile.n) * entries
    return nest.conditions.split is not None and k >= LONG and IDLE * tiles <= min(programs, sm_count)


@dataclass(frozen=True, slots=True)
class Sized:
    """The choice of a schedule by a call's sizes, for a kernel that is not compiled yet. numbers: of the call, by argument."""

    numbers: Numbers
    sm_count: int

    @classmethod
    def of(cls, call: Call, grid: Sequence[int], sm_count: int) -> Sized:
        """That of a call. grid: empty if unknown."""
        return cls(with_grid(call.numbers, grid) if grid else call.numbers, sm_count)

    def sizes(self, nest: ProductNest) -> tuple[int, int, int, int] | None:
        """m, n, k and entries; None if a size depends on the number of programs, which is unknown."""
        try:
            return product_sizes(nest, self.numbers)
        except KeyError:
            return None

    def schedule(self, nest: ProductNest, target: Target, aligned_output: bool) -> Schedule | None:
        """The product's schedule, for an output that bulk copies can write or not; None: the kernel's tile."""
        sizes = self.sizes(nest)
        if sizes is None or min(sizes) <= 0:
            return None
        return schedule_of(nest, sizes, target, self.sm_count, aligned_output=aligned_output)


def product_sizes(nest: ProductNest, numbers: Numbers) -> tuple[int, int, int, int]:
    """m, n, k and entries of the product."""
    entries = 1 if nest.batch is None else nest.batch.value(numbers)
    return nest.m.value(numbers), nest.n.value(numbers), nest.k.value(numbers), entries
