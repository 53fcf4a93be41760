"""The pipeline of products: an ordered list of passes that lowers tile IR to PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.canonicalize import CANONICAL
from louver.compile.check.check import check_protocol
from louver.compile.dump import Dump, Watch
from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.generate import generate
from louver.compile.lower.products import lower
from louver.compile.passes import COPY, Pass, State, names, run_passes
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.compile.read_signature import read_signature
from louver.compile.signature import Signature
from louver.formats.pattern import Pattern
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.product import ProductNest
from louver.isa.targets import Target, target
from louver.ptx.module import Kernel, Module
from louver.ptx.printer import print_module

ProductLevel = Literal["tile", "sched", "ptx"]
"""Levels that can be printed, in the order of the pipeline."""


@dataclass(frozen=True, slots=True)
class CompiledProduct:
    """A product at every level.

    tile: the output of the frontend.
    sched: schedule IR, with places in shared memory.
    ptx: the text of `module`.
    """

    schedule: Schedule
    target: Target
    tile: ModuleOp
    nest: ProductNest
    sched: ModuleOp
    module: Module
    ptx: str
    signature: Signature

    @property
    def checked(self) -> ProductNest:
        """The product nest, which a launch checks."""
        return self.nest

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    @property
    def aligned_output(self) -> bool:
        """Whether the output's address and rows must be multiples of 16 bytes."""
        return self.schedule.store.way == "bulk"

    def text(self, level: ProductLevel) -> str:
        """The text of a level."""
        match level:
            case "tile":
                return str(self.tile) + "\n"
            case "sched":
                return str(self.sched) + "\n"
            case "ptx":
                return self.ptx


@dataclass(slots=True)
class ProductState(State):
    """A product between two passes.

    choose: chooses the schedule.
    nest: the computation.
    schedule: the way in which the kernel computes it.
    lowered: the PTX module.
    ptx: its text.
    """

    target: Target
    choose: Callable[[ProductNest], Schedule]
    nest: ProductNest = field(init=False)
    schedule: Schedule = field(init=False)
    lowered: Module = field(init=False)
    ptx: str = field(init=False)


def _read_nest(state: ProductState) -> object:
    """read-nest: reads loads, dot, epilogue and store as a product nest."""
    state.nest = read_nest(state.module)
    return state.nest


def _choose_schedule(state: ProductState) -> object:
    """choose-schedule: takes the caller's schedule for the nest."""
    state.schedule = state.choose(state.nest)
    return state.schedule


def _generate(state: ProductState) -> None:
    """generate-schedule: writes schedule IR of the nest: roles, rings, barriers, copies, products."""
    state.module = generate(state.nest, state.schedule, state.target)


def _lower(state: ProductState) -> object:
    """lower-to-ptx: lowers each operation of schedule IR to PTX, and prints the module."""
    state.lowered = lower(state.module, state.target.name)
    state.ptx = print_module(state.lowered)
    return state.ptx


READ: tuple[Pass[ProductState], ...] = (COPY, *CANONICAL)
"""Passes that bring tile IR to the form that the library writes."""

GENERATE: tuple[Pass[ProductState], ...] = (
    Pass("read-nest", _read_nest),
    Pass("choose-schedule", _choose_schedule),
    Pass("generate-schedule", _generate),
    Pass("assign-shared-memory", lambda state: assign_shared_memory(state.module, state.target)),
    Pass("check-protocol", lambda state: check_protocol(state.module)),
    Pass("lower-to-ptx", _lower),
)
"""Passes that lower to schedule IR, and from there to PTX."""

PASSES = (*READ, *GENERATE)
"""All passes, in order. With `LOUVER_DUMP`, each writes its result to a file."""


def compile_tile_ir(
    tile_ir: ModuleOp,
    schedule: Schedule | Callable[[ProductNest], Schedule],
    target_name: str = "sm_90a",
    *,
    watch: Watch | None = None,
) -> CompiledProduct:
    """Lowers tile IR to PTX by `PASSES`.

    schedule: the schedule, or a function that chooses it for the product that is read from the kernel.
    watch: receives the result of each pass; by default the dump that the environment asks for.

    Raises ValueError, with the rule, for a kernel that cannot be compiled. The PTX is not assembled here.
    """
    machine = target(target_name)
    if not machine.has("wgmma.sp"):
        raise ValueError(f"products are scheduled for sm_90a, got {target_name}: it has no warpgroup products")
    state = ProductState(tile_ir, machine, schedule if callable(schedule) else lambda _: schedule)
    watch = watch or Dump.of(tile_ir, names(PASSES))
    run_passes(READ, state, watch)
    run_passes(GENERATE, state, watch)
    signature = read_signature(state.module)
    return CompiledProduct(
        state.schedule, machine, tile_ir, state.nest, state.module, state.lowered, state.ptx, signature
    )


def compile_product(problem: Problem, schedule: Schedule, target_name: str = "sm_90a") -> CompiledProduct:
    """Compiles a product of the library from tile IR."""
    return compile_tile_ir(build_tile_ir(problem, written_tile(problem, schedule)), schedule, target_name)


def written_tile(problem: Problem, schedule: Schedule) -> Tile:
    """The tile in a problem's tile IR: the tile of the schedule, or one of whole windows and groups where that would
    cut vectors.
    """
    tile = schedule.tile
    if not problem.gathers:
        return Tile(tile.m, tile.n, tile.k)
    pattern = Pattern.parse(problem.pattern)
    fits = tile.m % pattern.length == 0 or pattern.length % tile.m == 0
    return Tile(tile.m if fits else pattern.length, tile.n, -(-tile.k // pattern.m) * pattern.m)
