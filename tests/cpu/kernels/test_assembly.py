"""What the assembler makes of the library's kernels: no lost performance, no spill, and the instructions they stand for."""

from __future__ import annotations

from typing import get_args

import pytest

from louver.frontend.problem import BLayout, Problem
from louver.isa.targets import SM_90A
from louver.kernels.configure import MIN_N_MAJOR, TILE_N, choose
from louver.passes.pipeline import compile_product
from louver.passes.schedule import Schedule
from louver.ptx.assembler import assemble
from louver.ptx.sass import disassemble, opcodes

MANY = 1 << 16
"""Rows enough that no tile is made narrower to keep SMs busy."""

Product = tuple[Problem, Schedule]


def every_product() -> list[Product]:
    """Every kernel that `choose` can ask for."""
    problems = [
        Problem(kind, dtype, dtype, out, b_layout=layout, bias=bias)
        for kind, layout, bias in _forms()
        for dtype in ("f16", "bf16")
        for out in ("f16", "bf16", "f32")
    ]
    return [
        (problem, schedule)
        for problem in problems
        for schedule in dict.fromkeys(
            choose(problem, MANY, n, SM_90A, 132, aligned_output=aligned) for n in TILE_N for aligned in (False, True)
        )
    ]


def _forms() -> list[tuple[str, BLayout, str | None]]:
    linear = [("linear", "k_major", bias) for bias in (None, "row")]
    return [*linear, *(("matmul", layout, None) for layout in get_args(BLayout))]


def name(product: Product) -> str:
    problem, schedule = product
    bias = "-bias" if problem.bias else ""
    return f"{problem.kind}{bias}-{problem.b_layout}-{problem.a}-{problem.out}-n{schedule.tile_n}-{schedule.store}"


def representative(product: Product) -> bool:
    """Every tile width, form, store and output once or twice; the widest tiles, which are shortest of registers, more often."""
    problem, schedule = product
    turn = (TILE_N.index(schedule.tile_n) + len(problem.kind) + (schedule.store == "bulk")) % 3
    output = ("f16", "bf16", "f32")[turn]
    biased_if_linear = (problem.bias is not None) == (problem.kind == "linear")
    wide = schedule.tile_n == 256 and problem.a == "bf16" and problem.out in ("bf16", "f32")
    return biased_if_linear and (wide or (problem.a == "f16" and problem.out == output))


def marked(products: list[Product]) -> list[object]:
    return [
        pytest.param(*product, id=name(product), marks=() if representative(product) else pytest.mark.slow)
        for product in products
    ]


@pytest.mark.parametrize(("problem", "schedule"), marked(every_product()))
def test_kernels_assemble_cleanly(problem: Problem, schedule: Schedule) -> None:
    assembly = assemble(compile_product(problem, schedule).ptx)
    assert not [warning.text for warning in assembly.warnings]
    assert assembly.clean, assembly.kernels
    found = opcodes(disassemble(assembly.cubin))
    sparse = f"HGMMA.SP.64x{schedule.tile_n}x32.F32"
    # Two products of 32 columns a step: eight steps in the main loop's body, one in the rest.
    assert sum(count for opcode, count in found.items() if opcode.startswith(sparse)) >= 2
    assert not [opcode for opcode in found if opcode.startswith("HGMMA") and not opcode.startswith(sparse)]
    assert {opcode.split(".")[1] for opcode in found if opcode.startswith("USETMAXREG")} == {"DEALLOC", "TRY_ALLOC"}
    assert any(opcode.startswith("UTMALDG") for opcode in found)


def test_the_default_set_has_every_width_and_store() -> None:
    chosen = [product for product in every_product() if representative(product)]
    assert {schedule.tile_n for _, schedule in chosen} == set(TILE_N)
    assert {(problem.kind, problem.b_layout, bool(problem.bias)) for problem, _ in chosen} == {
        ("linear", "k_major", True),
        ("matmul", "k_major", False),
        ("matmul", "n_major", False),
    }
    assert {schedule.store for _, schedule in chosen} == {"direct", "bulk"}
    assert {problem.out for problem, _ in chosen} == {"f16", "bf16", "f32"}
    assert min(s.tile_n for p, s in every_product() if p.b_layout == "n_major") == MIN_N_MAJOR
