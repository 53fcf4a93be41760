"""Registers of register tiles: more warps where a thread would spill, and fewer registers a thread where more CTAs then fit an SM."""

from __future__ import annotations

from louver.compile.choose_family import CompiledKernel
from louver.compile.tiles import SM_WARPS, CompiledTiles, compile_tiles
from louver.isa.instruction import LANES
from louver.ptx.assembler import Assembly, AssemblyError, assemble

MOST_WARPS = 16
"""Warps of a CTA beyond which each thread has fewer registers than it can name."""


WARPS_OF_SM = (SM_WARPS, 20, 12)
"""Warps that share an SM's registers, best first: 128 registers a thread, 96 or 168. One waits for memory while another multiplies."""

LEAST_SHARE = 0.6
"""Of the registers that a thread takes by itself: with fewer it would spill."""


def with_room(kernel: CompiledKernel, assembly: Assembly, warps: int | None) -> tuple[CompiledKernel, Assembly]:
    """A kernel and what the assembler makes of it, as it is launched; products stay as they are.

    warps: the user's choice, or None for Louver's.
    """
    if warps is None:
        kernel, assembly = _with_warps(kernel, assembly)
    made = kernel.made
    if not isinstance(made, CompiledTiles) or spilled(assembly):
        return kernel, assembly
    for wanted in WARPS_OF_SM:
        ctas = min(wanted // warps_of(made), made.ctas_by_shared)
        registers = assembly.kernels[0].registers * made.signature.threads * ctas
        if ctas <= 1 or registers <= made.target.registers_per_sm:
            break
        if registers * LEAST_SHARE > made.target.registers_per_sm:
            continue
        closer = made.with_ctas(ctas)
        try:
            tried = assemble(closer.ptx, made.target.name)
        except AssemblyError:
            # A product of a warpgroup has more sums than so few registers hold.
            continue
        if tried.clean:
            return CompiledKernel(closer, kernel.refusal), tried
    return kernel, assembly


def _with_warps(kernel: CompiledKernel, assembly: Assembly) -> tuple[CompiledKernel, Assembly]:
    """A kernel with twice as many warps while that spills fewer registers."""
    made = kernel.made
    while isinstance(made, CompiledTiles) and spilled(assembly) and 2 * warps_of(made) <= MOST_WARPS:
        wider = compile_tiles(made.tile, made.target.name, warps=2 * warps_of(made), boxes=made.boxes)
        tried = assemble(wider.ptx, made.target.name)
        if spilled(tried) >= spilled(assembly):
            break
        kernel, made, assembly = CompiledKernel(wider, kernel.refusal), wider, tried
    return kernel, assembly


def warps_of(made: CompiledTiles) -> int:
    """Warps of a CTA."""
    return made.signature.threads // LANES


def spilled(assembly: Assembly) -> int:
    """Bytes of registers that a thread keeps in memory."""
    return sum(kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in assembly.kernels)


def explain_room(kernel: CompiledKernel, warps: int | None) -> tuple[CompiledTiles, str | None]:
    """A kernel of register tiles as it is launched, and what its user should know; None if there is nothing.

    warps: the user's choice, or None for Louver's.
    """
    assembly = assemble(kernel.made.ptx, kernel.made.target.name)
    kernel, assembly = with_room(kernel, assembly, warps)
    made, count = kernel.made, spilled(assembly)
    assert isinstance(made, CompiledTiles)
    if not count:
        return made, None
    return made, (
        f"with {warps_of(made)} warps each thread moves {count} bytes of registers to memory and back: choose smaller blocks, "
        "or another num_warps"
    )
