"""Kernels of register tiles on the emulator, from the texts that Triton made, against float64 and against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from louver.choose.occupancy import with_room
from louver.compile.canonical.propagate_sparsity import propagate_sparsity
from louver.compile.compiled import CompiledKernel, CompiledTiles
from louver.emulator import Seeded
from louver.ir.interpret import run_kernel
from support.compiled import compiled_ttir, read_copy
from support.emulate_tiles import emulate_tiles
from support.triton.tile_cases import TILE_CASES, kept_tiles
from support.triton.tile_runs import RUNS, Run, without_flag


def check(compiled: CompiledTiles, run: Run, seed: int = 3) -> None:
    outputs = [name for name in run.expected if name not in run.read_first]
    emulate_tiles(compiled, run.grid, run.arguments, order=Seeded(seed), uninitialised=outputs)
    run.check()


@pytest.mark.parametrize("name", TILE_CASES)
def test_every_kernel(rng: np.random.Generator, name: str) -> None:
    check(compiled_ttir(kept_tiles(name)), RUNS[name](rng, name))


@pytest.mark.parametrize("warps", [1, 2, 8])
@pytest.mark.parametrize(
    "name",
    [
        "dot_f16",
        "dot_s8",
        "right_sparse",
        "softmax_dot",
        "two_dots",
        "attention",
        "column_sums",
        "work_queue",
        "elementwise",
    ],
)
def test_any_number_of_warps(rng: np.random.Generator, name: str, warps: int) -> None:
    compiled = compiled_ttir(kept_tiles(name), warps)
    assert compiled.signature.threads == 32 * warps
    check(compiled, RUNS[name](rng, name))


def test_a_branch_that_is_not_taken(rng: np.random.Generator) -> None:
    check(compiled_ttir(kept_tiles("two_dots")), without_flag(rng))


@pytest.mark.parametrize("name", TILE_CASES)
def test_the_interpreter_agrees(rng: np.random.Generator, name: str) -> None:
    run = RUNS[name](rng, name)
    module = read_copy(kept_tiles(name))
    propagate_sparsity(module)
    run_kernel(module, run.grid, run.arguments)
    run.check()


@pytest.mark.parametrize("name", TILE_CASES)
def test_the_assembler_takes_it(name: str) -> None:
    # A thread may spill by the warps that the compiler chooses; the kernel is launched with more.
    found = with_room(CompiledKernel(compiled_ttir(kept_tiles(name)), None), None)
    assert found.assembly.clean, found.assembly.warnings


def test_arguments_that_do_not_fit(rng: np.random.Generator) -> None:
    compiled = compiled_ttir(kept_tiles("small_dot"))
    run = RUNS["small_dot"](rng, "small_dot")
    with pytest.raises(ValueError, match="the kernel's arguments are d, a, b, got d"):
        emulate_tiles(compiled, (1,), {"d": run.arguments["d"]})
    with pytest.raises(ValueError, match="'a' is a sparse tensor, got ndarray"):
        emulate_tiles(compiled, (1,), {**run.arguments, "a": run.arguments["b"]})
    with pytest.raises(ValueError, match="'b' is a dense array, got SparseTensor"):
        emulate_tiles(compiled, (1,), {**run.arguments, "b": run.arguments["a"]})
