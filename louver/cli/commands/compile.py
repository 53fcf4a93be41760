"""`louver compile`: a library product at each level, as text."""

from __future__ import annotations

import functools
from typing import cast

from louver.choose.choose_tiles import broken_rule, choose_tiles
from louver.choose.configure import choose
from louver.choose.reasons import Reasons, weighed
from louver.cli.commands.kernel_levels import Source
from louver.compile.compiled import CompiledKernel, CompiledProduct
from louver.compile.pipeline import compile_product
from louver.compile.plan.register_tiles import AnySchedule
from louver.formats.dtypes import element_type
from louver.frontend.problem import MAX_SIZE, PRODUCTS, Kind, Problem
from louver.isa.bulk import COPY_CHUNK
from louver.isa.targets import target as machine
from louver.library.compiled import assemble_tiles
from louver.user.retile import SM_COUNT


def parse_sizes(text: str) -> tuple[int, int, int]:
    """M, N, K from text such as "4096,256,4096". Raises ValueError for other text."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and part.strip("0") for part in parts):
        raise ValueError(f"a problem is M,N,K, three positive integers such as 4096,256,4096, got {text!r}")
    if any(len(part) > len(str(MAX_SIZE)) or int(part) > MAX_SIZE for part in parts):
        raise ValueError(
            f"sizes of a problem M,N,K are at most {MAX_SIZE:,}, got {text[:80]!r}: kernels count in 32 bits"
        )
    m, n, k = (int(part) for part in parts)
    return m, n, k


def compile_for(
    sizes: tuple[int, int, int], dtype: str, product: str, target: str, *, bias: bool, accumulate: str = "auto"
) -> CompiledProduct:
    """The library's kernel for a product. The sizes (M, N, K) choose the schedule, but the kernel takes any sizes.

    dtype: of both operands. The output is contiguous and has the library's default type.
    """
    problem, aligned = _problem(sizes, dtype, product, accumulate, bias=bias)
    m, n, k = sizes
    schedule = choose(problem, m, n, machine(target), SM_COUNT, aligned_output=aligned, k=k, cuts=True)
    return compile_product(problem, schedule, target)


def _problem(
    sizes: tuple[int, int, int], dtype: str, product: str, accumulate: str, *, bias: bool = False
) -> tuple[Problem, bool]:
    """The problem, and whether the rows of its output are multiples of 16 bytes."""
    out, (m, n, _) = PRODUCTS[dtype, dtype][0], sizes
    kind = cast("Kind", product)
    row = (m if product == "linear" else n) * element_type(out).bytes
    problem = Problem(kind, dtype, dtype, out, accumulate=accumulate, bias="row" if bias else None)
    return problem, row % COPY_CHUNK == 0


def product_source(
    sizes: tuple[int, int, int], dtype: str, product: str, target: str, accumulate: str = "auto"
) -> Source:
    """The library's kernel for a product: from `compile_for`, or register tiles on targets without warpgroup products."""
    problem, aligned = _problem(sizes, dtype, product, accumulate)

    @functools.cache
    def made() -> tuple[CompiledKernel, AnySchedule]:
        if machine(target).has("wgmma.sp") and broken_rule(machine(target), problem.pattern, dtype, dtype) is None:
            found = compile_for(sizes, dtype, product, target, bias=False, accumulate=accumulate)
            return CompiledKernel(found), found.schedule
        schedule = choose_tiles(problem, (*sizes, 1), machine(target), SM_COUNT, aligned_output=aligned)
        tiles, _ = assemble_tiles(problem, schedule)
        return CompiledKernel(tiles.tiles, f"{target} has no warpgroup products"), tiles.schedule

    def reasons() -> Reasons:
        _, schedule = made()
        told = (*sizes, 1), machine(target), SM_COUNT, schedule
        return weighed(problem, *told, aligned_output=aligned, cuts=True)

    return Source(lambda: made()[0].made.tile, lambda: made()[0], reasons)
