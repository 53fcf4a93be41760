"""A product's tile by the sizes of a call: a kernel that computes each tile once may run with another tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from louver.compile.plan.schedule import Schedule
from louver.ir.polynomial import Numbers, with_grid
from louver.ir.product import ProductNest
from louver.isa.targets import Target
from louver.library.configure import Demand, choose_for
from louver.user.arguments import Call

SM_COUNT = 132
"""SMs to pretend where there is no GPU to ask: an H200's."""

Sized = Callable[[ProductNest, Target, bool], Schedule | None]
"""The schedule of a product, for a target and for an output that bulk copies can write or not; None for the kernel's own tile."""


def schedule_of(
    nest: ProductNest, sizes: tuple[int, int, int, int], target: Target, sm_count: int, *, aligned_output: bool
) -> Schedule | None:
    """The library's schedule for a product of these sizes: m, n, k and entries. None where the kernel's tile says what each tile reads."""
    if nest.a.index is not None:
        return None
    return choose_for(Demand.of_nest(nest), sizes, target, sm_count, aligned_output=aligned_output)


def sized(call: Call, grid: Sequence[int], sm_count: int) -> Sized:
    """The choice of the schedule of a kernel that is not compiled yet: by the sizes of the call. grid: empty where nobody knows it."""
    numbers = with_grid(call.numbers, grid) if grid else call.numbers

    def schedule(nest: ProductNest, target: Target, aligned_output: bool) -> Schedule | None:
        try:
            sizes = product_sizes(nest, numbers)
        except KeyError:
            # A size that counts programs.
            return None
        return schedule_of(nest, sizes, target, sm_count, aligned_output=aligned_output) if min(sizes) > 0 else None

    return schedule


def product_sizes(nest: ProductNest, numbers: Numbers) -> tuple[int, int, int, int]:
    """m, n, k and entries of the product, by a call's numbers."""
    entries = 1 if nest.batch is None else nest.batch.value(numbers)
    return nest.m.value(numbers), nest.n.value(numbers), nest.k.value(numbers), entries
