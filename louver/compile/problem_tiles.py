"""Compiles a product of the library to register tiles, for targets without warpgroup products."""

from __future__ import annotations

from dataclasses import dataclass, replace

from louver.compile.compiled import CompiledTiles
from louver.compile.pipeline import compile_tiles
from louver.compile.plan.nest import read_nest
from louver.compile.plan.register_tiles import RegisterTiles
from louver.compile.signature import Signature
from louver.formats.dtypes import byte_of, element_type
from louver.frontend.builder import build_tile_ir
from louver.frontend.problem import Problem, Tile
from louver.ir.polynomial import Polynomial
from louver.ir.product import ProductNest
from louver.ir.tile import FuncOp
from louver.ir.tile.multiples import mark_apart, mark_multiples
from louver.isa.bulk import COPY_CHUNK
from louver.ptx.module import Kernel

VALUES_PER_COLUMN = 2
"""Dense columns for each value that a 2:4 or 1:2 tensor stores."""


@dataclass(frozen=True, slots=True)
class ProblemTiles:
    """A product of the library as register tiles.

    nest: what it computes, with bytes in place of pairs of 4-bit integers, and without scales of blocks.
    tiles: the kernel. Its launch has a grid of one axis.
    """

    schedule: RegisterTiles
    nest: ProductNest
    tiles: CompiledTiles

    @classmethod
    def of(cls, problem: Problem, schedule: RegisterTiles, tiles: CompiledTiles, ctas: int = 1) -> ProblemTiles:
        """The product of a compiled kernel, whose launch walks tiles in bands.

        ctas: CTAs that an SM holds at a time.
        """
        m, n = schedule.tile_m, schedule.tile_n
        batch = "" if problem.batch is None else "*batch"
        grid = Polynomial.parse(f"((M + {m - 1})/{m})*((N + {n - 1})/{n}){batch}")
        at_once = Polynomial.parse(f"{ctas}*sms" if ctas > 1 else "sms")
        signature = replace(tiles.signature, grid=grid, tile=(m, n), at_once=at_once)
        bytes_ = replace(problem, a=byte_of(problem.a), b=byte_of(problem.b), epilogue=problem.epilogue.after)
        nest = read_nest(build_tile_ir(bytes_, _tile(schedule)))
        return cls(schedule, nest, replace(tiles, signature=signature))

    @property
    def kernel(self) -> Kernel:
        """The kernel, as the emulator runs it."""
        return self.tiles.kernel

    @property
    def signature(self) -> Signature:
        """The interface to a launch."""
        return self.tiles.signature

    @property
    def aligned_output(self) -> bool:
        """Whether the output's address and rows must be multiples of 16 bytes."""
        return self.schedule.aligned_output


def compile_problem_tiles(problem: Problem, schedule: RegisterTiles) -> CompiledTiles:
    """The kernel of a product. Raises UnsupportedKernelError or ValueError for a product that register tiles lack."""
    module = build_tile_ir(problem, _tile(schedule), "bands")
    for function in module.body.ops:
        if isinstance(function, FuncOp):
            mark_multiples(function, _multiples(problem, schedule))
            # A launch checks that the output overlaps no operand. `c` may be the output, each element of which is read
            # by the program that stores it.
            mark_apart(function, ("a", "b"))
    return compile_tiles(module, schedule.target, warps=schedule.warps, boxes=False, gaps=True)


def _tile(schedule: RegisterTiles) -> Tile:
    return Tile(schedule.tile_m, schedule.tile_n, schedule.tile_k)


def _multiples(problem: Problem, schedule: RegisterTiles) -> dict[str, int]:
    """The powers of two that divide arguments: addresses in bytes, sizes and strides in elements.

    Every launch has such operands: rows of stored values and of the dense operand begin at multiples of 16 bytes.
    """
    values, dense = (COPY_CHUNK // element_type(each).bytes for each in (problem.a, problem.b))
    found = {"a": COPY_CHUNK, "b": COPY_CHUNK, "K": schedule.k_multiple}
    found |= {"stride_a": values * VALUES_PER_COLUMN, "batch_stride_a": values * VALUES_PER_COLUMN}
    found |= {"stride_b": dense, "batch_stride_b": dense}
    if schedule.aligned_output:
        stored = COPY_CHUNK // element_type(problem.out).bytes
        # Gated products store half as many rows.
        rows = stored * problem.rows_per_output
        along = {"M": rows} if problem.out_layout == "transposed" else {"N": stored}
        found |= {"d": COPY_CHUNK, "stride_d": stored, "batch_stride_d": stored, **along}
    return found
