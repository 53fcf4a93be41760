"""The pipeline: tile IR to PTX, its passes named in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.isa.targets import Target, target
from louver.passes.assign import assign_shared_memory
from louver.passes.canonicalize import canonicalize
from louver.passes.generate import generate
from louver.passes.lower import lower
from louver.passes.nest import read_nest
from louver.passes.product import ProductNest
from louver.passes.protocol.check import check_protocol
from louver.passes.read_signature import read_signature
from louver.passes.schedule import Schedule
from louver.passes.signature import Signature
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


def compile_tile_ir(tile_ir: ModuleOp, schedule: Schedule, target_name: str = "sm_90a") -> CompiledProduct:
    """Tile IR to PTX: canonicalize-kernel, read-nest, generate-schedule, assign-shared-memory, check-protocol, lower-to-ptx, print-ptx.

    Raises ValueError with the rule for what cannot be compiled; nothing is assembled here.
    """
    machine = target(target_name)
    if not machine.has("wgmma.sp"):
        raise ValueError(f"products are scheduled for sm_90a, got {target_name}: it has no warpgroup products")
    nest = read_nest(canonicalize(tile_ir))
    sched = generate(nest, schedule, machine)
    assign_shared_memory(sched, machine)
    sched.verify()
    check_protocol(sched)
    module = lower(sched, machine.name)
    return CompiledProduct(schedule, machine, tile_ir, nest, sched, module, print_module(module), read_signature(sched))


def compile_product(problem: Problem, schedule: Schedule, target_name: str = "sm_90a") -> CompiledProduct:
    """A library product, by way of tile IR."""
    tile = Tile(schedule.tile_m, schedule.tile_n, schedule.tile_k)
    return compile_tile_ir(build_tile_ir(problem, tile), schedule, target_name)
