"""`louver compile`: a library product at each stage, as text."""

from __future__ import annotations

from typing import cast

from louver.formats.dtypes import element_type
from louver.frontend.problem import PRODUCTS, Kind, Problem
from louver.isa.targets import target as machine
from louver.isa.tensormap import COPY_CHUNK
from louver.kernels.configure import choose
from louver.passes.canonicalize import canonicalize
from louver.passes.decompose import decompose_sparse_tensors
from louver.passes.pipeline import CompiledProduct, Stage, compile_product
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble

SM_COUNT = 132
"""SMs to schedule for where there is no device to ask: a whole Hopper GPU."""

STAGES = ("tile", "decomposed", "sched", "ptx", "sass")
"""What can be printed, in order: "decomposed" is made of the tile IR for its reader, and nothing further of it."""


def parse_sizes(text: str) -> tuple[int, int, int]:
    """M, N, K of a text such as "4096,256,4096". Raises ValueError."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise ValueError(f"a problem is M,N,K, three positive integers such as 4096,256,4096, got {text!r}")
    m, n, k = (int(part) for part in parts)
    return m, n, k


def compile_for(
    sizes: tuple[int, int, int], dtype: str, product: str, target: str, *, bias: bool, accumulate: str = "auto"
) -> CompiledProduct:
    """The library's kernel for a product of `sizes` (M, N, K), which choose the schedule: the kernel takes any.

    dtype: of both operands; the output is what the library returns for them by default, contiguous.
    """
    out = PRODUCTS[dtype, dtype][0]
    kind = cast("Kind", product)
    problem = Problem(kind, dtype, dtype, out, accumulate=accumulate, bias="row" if bias else None)
    m, n, _ = sizes
    row = (m if product == "linear" else n) * element_type(out).bytes
    schedule = choose(problem, m, n, machine(target), SM_COUNT, aligned_output=row % COPY_CHUNK == 0)
    return compile_product(problem, schedule, target)


def compile_text(
    sizes: tuple[int, int, int], dtype: str, product: str, emit: str, target: str, accumulate: str = "auto"
) -> str:
    """What `emit` names (one of `STAGES`, or "all") of a product. Raises ValueError with the rule broken."""
    if emit not in (*STAGES, "all"):
        raise ValueError(f"a product is printed as {', '.join(STAGES)} or all, got {emit}: a Triton kernel has a TTIR")
    compiled = compile_for(sizes, dtype, product, target, bias=False, accumulate=accumulate)
    if emit != "all":
        return stage_text(compiled, emit)
    return "\n".join(f"// ---- {stage} ----\n{stage_text(compiled, stage)}" for stage in STAGES)


def stage_text(compiled: CompiledProduct, stage: str) -> str:
    """One of `STAGES` as text; "sass" assembles and disassembles."""
    if stage == "decomposed":
        return str(decompose_sparse_tensors(canonicalize(compiled.tile))) + "\n"
    if stage != "sass":
        return compiled.text(cast("Stage", stage))
    return disassemble(assemble(compiled.ptx, compiled.target.name).cubin)
