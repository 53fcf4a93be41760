"""Which family of kernels a user's kernel belongs to: warpgroup products where it is one, register tiles for everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from louver.ir.refusal import UnsupportedKernelError
from louver.passes.compile_tiles import CompiledTiles, compile_tiles
from louver.passes.pipeline import CompiledProduct, compile_tile_ir
from louver.passes.product import ProductNest
from louver.passes.schedule import Schedule


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A kernel as one of the two. refusal: why it is no product, for register tiles; None for a product."""

    made: CompiledProduct | CompiledTiles
    refusal: str | None = None


def compile_kernel(
    tile_ir: ModuleOp,
    schedule: Callable[[ProductNest], Schedule],
    target: str = "sm_90a",
    *,
    warps: int | None = None,
) -> CompiledKernel:
    """The kernel as a product, run as `schedule` says, or by register tiles if it is none, with so many warps.

    Raises UnsupportedKernelError, with the operation and its source line, or ValueError for what neither can do.
    """
    try:
        return CompiledKernel(compile_tile_ir(tile_ir, schedule, target))
    except ValueError as refusal:
        return as_tiles(tile_ir, target, warps, refusal)


def as_tiles(tile_ir: ModuleOp, target: str, warps: int | None, refusal: ValueError) -> CompiledKernel:
    """The kernel by register tiles. refusal: why not as a product; an error has it as a note."""
    try:
        return CompiledKernel(compile_tiles(tile_ir, target, warps=warps), str(refusal))
    except UnsupportedKernelError as error:
        error.add_note(f"As a warpgroup product it is refused too: {refusal}")
        raise error from None
