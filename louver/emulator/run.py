"""`run`: a kernel on the CPU, with its errors found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from louver.emulator.memory import Allocation, GlobalMemory
from louver.emulator.order import Latest, Order
from louver.isa.tensormap import TensorMap
from louver.ptx.module import Kernel

Argument: TypeAlias = int | float | Allocation | TensorMap
"""A kernel argument: a number for `u32`, `u64` and `f32`, an allocation for its address (`u64`), a tensor map."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did. instructions: executed per warp, by mnemonic. bulk_loads, bulk_stores: tiled copies.

    products: warpgroup products (wgmma). Use `instructions.total()` for the sum.
    """

    instructions: Counter[str]
    bulk_loads: int
    bulk_stores: int
    products: int


def run(
    kernel: Kernel,
    grid: int,
    arguments: Mapping[str, Argument],
    *,
    memory: GlobalMemory,
    order: Order = Latest(),  # noqa: B008 - frozen
) -> Report:
    """Run `grid` CTAs of `kernel` to their end; results are in the arrays of `memory`.

    grid: CTAs along x, a multiple of `kernel.cluster`. arguments: by parameter name.
    Raises a subclass of EmulationError for the first misuse found.
    """
    raise LookupError(f"{kernel.name} {grid} {arguments} {memory} {order}")
