"""The pipeline: tile IR to PTX, its passes named in order. `LOUVER_DUMP=DIR` has each of them write what it made to files there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.canonicalize import CANONICAL, canonicalize
from louver.compile.check.check import check_protocol
from louver.compile.dump import Dump
from louver.compile.generate.assign import assign_shared_memory
from louver.compile.generate.generate import generate
from louver.compile.lower.products import lower
from louver.compile.plan.nest import read_nest
from louver.compile.plan.schedule import Schedule
from louver.compile.read_signature import read_signature
from louver.compile.signature import Signature
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.product import ProductNest
from louver.isa.targets import Target, target
from louver.ptx.module import Kernel, Module
from louver.ptx.printer import print_module

Stage = Literal["tile", "sched", "ptx"]
"""Stages that print, in order."""


@dataclass(frozen=True, slots=True)
class CompiledProduct:
    """A product at every stage. tile: as the frontend has it. sched: generated and assigned. ptx: its text."""

    schedule: Schedule
    target: Target
    tile: ModuleOp
    nest: ProductNest
    sched: ModuleOp
    module: Module
    ptx: str
    signature: Signature

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.module.kernels[0]

    def text(self, stage: Stage) -> str:
        """What a stage prints."""
        match stage:
            case "tile":
                return str(self.tile) + "\n"
            case "sched":
                return str(self.sched) + "\n"
            case "ptx":
                return self.ptx


PASSES = (
    "tile-ir",
    *CANONICAL,
    # Detecting sparse operands and choosing sparse or dense by cost come here, before a kernel is read as a product.
    "read-nest",
    # The instruction family is chosen here, by the schedule.
    "generate-schedule",
    "assign-shared-memory",
    "check-protocol",
    "lower-to-ptx",
)
"""Every pass, in order, after what the frontend made."""


def compile_tile_ir(
    tile_ir: ModuleOp, schedule: Schedule | Callable[[ProductNest], Schedule], target_name: str = "sm_90a"
) -> CompiledProduct:
    """Tile IR to PTX, by `PASSES`. schedule: the schedule, or what chooses one for the product that the kernel turns out to be.

    Raises ValueError with the rule for what cannot be compiled; nothing is assembled here.
    """
    machine = target(target_name)
    if not machine.has("wgmma.sp"):
        raise ValueError(f"products are scheduled for sm_90a, got {target_name}: it has no warpgroup products")
    dump = Dump.of(tile_ir, PASSES)
    dump.write("tile-ir", tile_ir)
    nest = read_nest(canonicalize(tile_ir, dump.write))
    dump.write("read-nest", nest)
    chosen = schedule(nest) if callable(schedule) else schedule
    sched = generate(nest, chosen, machine)
    dump.write("generate-schedule", sched)
    assign_shared_memory(sched, machine)
    sched.verify()
    dump.write("assign-shared-memory", sched)
    check_protocol(sched)
    dump.write("check-protocol", sched)
    module = lower(sched, machine.name)
    ptx = print_module(module)
    dump.write("lower-to-ptx", ptx)
    return CompiledProduct(chosen, machine, tile_ir, nest, sched, module, ptx, read_signature(sched))


def compile_product(problem: Problem, schedule: Schedule, target_name: str = "sm_90a") -> CompiledProduct:
    """A library product, by way of tile IR."""
    tile = Tile(schedule.tile_m, schedule.tile_n, schedule.tile_k)
    return compile_tile_ir(build_tile_ir(problem, tile), schedule, target_name)
