"""The library's products and the kept Triton kernels, interpreted: against float64, and before and after each pass."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from louver.compile.canonical.canonicalize import CANONICAL
from louver.compile.passes import State
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import NO_EPILOGUE
from louver.frontend.problem import Problem, Tile
from louver.ir.context import parse_ir
from louver.ir.interpret import run_kernel
from louver.ir.tile import FuncOp
from support.compiled import read_copy, remembered
from support.fused import EPILOGUES, fused_operands
from support.interpreted import run_problem, run_triton, triton_given
from support.products import OF_NUMBERS
from support.triton.cases import CASES, KEPT_CASES, kept

TILE = Tile(32, 16, 32)

KINDS = [
    Problem(kind=kind, a=a, b=b, out=out, bias=bias)
    for (index, ((a, b), outs)), kind in product(enumerate(OF_NUMBERS.items()), ("matmul", "linear"))
    for out, bias in ((outs[0], None), (outs[1 + index % (len(outs) - 1)], "row"))
]


@pytest.mark.parametrize("problem", KINDS, ids=lambda p: f"{p.kind}-{p.a}-{p.b}-{p.out}")
def test_products_of_all_types(rng: np.random.Generator, problem: Problem) -> None:
    operands = fused_operands(rng, problem, 67, 35, 77)
    operands.assert_close(run_problem(problem, TILE, operands))


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(("kind", "a"), [("matmul", "f16"), ("linear", "s8")])
def test_epilogues(rng: np.random.Generator, epilogue: str, kind: Any, a: str) -> None:
    problem = Problem(kind=kind, a=a, b=a, out="bf16", bias="row", epilogue=EPILOGUES[epilogue])
    operands = fused_operands(rng, problem, 80 if problem.epilogue.gated else 67, 35, 77)
    operands.assert_close(run_problem(problem, TILE, operands))


def test_an_n_major_operand(rng: np.random.Generator) -> None:
    problem = Problem(a="bf16", b="bf16", out="f32", b_layout="n_major")
    operands = fused_operands(rng, problem, 33, 51, 130)
    operands.assert_close(run_problem(problem, TILE, operands))


def test_sums_in_f16_are_rounded_once_a_step(rng: np.random.Generator) -> None:
    problem = Problem(accumulate="f16")
    operands = fused_operands(rng, problem, 33, 17, 96)
    a, b = operands.a.astype(np.float64), operands.b.astype(np.float64)
    total = np.zeros((33, 17), np.float16)
    for k in range(0, 96, TILE.k):
        total = (total + a[:, k : k + TILE.k] @ b[k : k + TILE.k]).astype(np.float16)
    np.testing.assert_array_equal(run_problem(problem, TILE, operands), total)
    assert problem.epilogue == NO_EPILOGUE


@pytest.mark.parametrize(("name", "version"), KEPT_CASES)
def test_kept_kernels(rng: np.random.Generator, name: str, version: str) -> None:
    operands = triton_given(rng, name, 261, 71, 139)
    operands.assert_close(run_triton(read_copy(kept(name, version)), operands))


@remembered
def stages(name: str) -> tuple[tuple[str, ModuleOp], ...]:
    """A kept kernel as the frontend has it, and as each canonicalizing pass leaves it that changes it."""
    module = read_copy(kept(name))
    found = [("tile-ir", module.clone())]
    for each in CANONICAL:
        each.run(State(module))
        module.verify()
        if str(module) != str(found[-1][1]):
            found.append((each.name, module.clone()))
    return tuple(found)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("name", CASES)
def test_every_pass_keeps_what_a_kernel_computes(rng: np.random.Generator, name: str, draw: int) -> None:
    m, n, k = (int(size) for size in rng.integers(1, 300, 3))
    operands = triton_given(rng, name, m, n, k)
    (_, first), *rest = stages(name)
    expected = run_triton(first, operands)
    assert rest
    for after, module in rest:
        found = run_triton(module, operands, numbered=after == CANONICAL[-1].name)
        if after == "add-in-place":
            # A sum is rounded once where a product was rounded, and its sum with the rest again.
            operands.assert_close(found)
            expected = found
        np.testing.assert_array_equal(found, expected, err_msg=f"{after} at {m}, {n}, {k}")


def test_a_batch(rng: np.random.Generator) -> None:
    problem = Problem(b="f16", out="f32", batch="dense")
    entries = [fused_operands(rng, problem, 35, 19, 70) for _ in range(3)]
    a = entries[0].a
    b = np.stack([np.ascontiguousarray(entry.b.T) for entry in entries])
    d = np.full((3, 35, 19), np.nan, np.float32)
    sizes: dict[str, Any] = {"M": 35, "N": 19, "K": 70, "batch": 3, "stride_a": 70, "stride_b": 70, "stride_d": 19}
    sizes |= {"batch_stride_b": 19 * 70, "batch_stride_d": 35 * 19}
    run_kernel(build_tile_ir(problem, TILE), (2, 2, 3), {"a": entries[0].s, "b": b, "d": d, **sizes})
    for y, tokens in zip(d, b, strict=True):
        replace(entries[0], a=a, b=tokens.T).assert_close(y)


def test_the_simplified_kernel_of_block_pointers(rng: np.random.Generator) -> None:
    """Literal shapes and strides, 32×64 by 64×16, with the encoding in the text."""
    text = (Path(__file__).parents[1] / "inputs" / "simplified_sparse_dot.mlir").read_text(encoding="utf-8")
    operands = fused_operands(rng, Problem(), 32, 16, 64)
    module = parse_ir(text)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    names = list(function.argument_names.values())
    d = np.full((32, 16), np.nan, np.float16)
    by_name = dict(zip(names, (d, operands.s, np.ascontiguousarray(operands.b)), strict=True))
    run_kernel(module, (1,), by_name)
    operands.assert_close(d)
