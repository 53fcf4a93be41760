"""2:4 of pairs of 4-bit integers: every target that has the instruction assembles it cleanly; the emulator sums exactly."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.choose_tiles import choose_tiles, multiplies
from louver.compile.plan.register_tiles import RegisterTiles
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.targets import TARGETS
from louver.library.compiled import assemble_tiles
from louver.library.emulate import emulate

RANGES = {"s4x2": (-8, 8), "u4x2": (0, 16)}
PAIRS = list(itertools.product(RANGES, RANGES))
HAVE = [name for name, each in TARGETS.items() if multiplies(each, "s4x2", "s4x2")]


def operands(
    rng: np.random.Generator, a: str, b: str, sizes: tuple[int, int, int]
) -> tuple[louver.SparseTensor, np.ndarray, np.ndarray]:
    """A sparse weight, dense pairs, and the exact product [N, M]. sizes: M, N and the numbers of K."""
    m, n, k = sizes
    kinds: Any = a, b
    w = louver.pack_pairs(rng.integers(*RANGES[a], (m, k)), kinds[0])
    s = louver.compress(w, "2:4", method="magnitude")
    x = rng.integers(*RANGES[b], (n, k))
    return s, louver.pack_pairs(x, kinds[1]), x @ louver.unpack_pairs(np.asarray(s)).T.astype(np.int64)


def test_the_targets() -> None:
    assert HAVE == ["sm_80", "sm_86", "sm_87", "sm_88", "sm_89"]


@pytest.mark.parametrize("target", HAVE)
@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_each_target_and_type(rng: np.random.Generator, target: str, a: str, b: str) -> None:
    problem = Problem("linear", a, b, "s32")
    made, assembly = assemble_tiles(problem, RegisterTiles(target, 32, 16, 128, 2, 8))
    assert assembly.clean, assembly.faults
    assert f"m16n8k128.row.col.s32.{a[:2]}.{b[:2]}.s32" in made.tiles.ptx
    s, x, expected = operands(rng, a, b, (40, 19, 304))
    y, _ = emulate(made, s, x)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", HAVE)
def test_the_librarys_tiles_assemble(target: str) -> None:
    for kind, sizes in itertools.product(("linear", "matmul"), ((4096, 16, 4096, 1), (4096, 4096, 4096, 1))):
        chosen: Any = kind
        problem = Problem(chosen, "s4x2", "s4x2", "s32")
        tiles = choose_tiles(problem, sizes, TARGETS[target], 108, aligned_output=True)
        made, assembly = assemble_tiles(problem, tiles)
        assert assembly.clean and made.schedule == tiles, assembly.faults


def test_a_newer_gpu_checks_the_kernels() -> None:
    """Its assembler builds the instruction from others, without spills."""
    tiles = RegisterTiles("sm_80", 64, 64, 128, 4)
    _, assembly = assemble_tiles(Problem("linear", "s4x2", "s4x2", "s32"), tiles, "sm_90a")
    assert assembly.clean, assembly.faults


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 8, 256), (17, 1, 8), (72, 33, 1032), (64, 24, 136)])
def test_tails(rng: np.random.Generator, depth: int, m: int, n: int, k: int) -> None:
    made, _ = assemble_tiles(
        Problem("matmul", "s4x2", "u4x2", "s32"), RegisterTiles("sm_86", 16, 8, depth, 1, 1, aligned_output=False)
    )
    s, x, expected = operands(rng, "s4x2", "u4x2", (m, n, k))
    y, _ = emulate(made, s, x)
    np.testing.assert_array_equal(y, expected.T)


def test_an_epilogue(rng: np.random.Generator) -> None:
    epilogue = Epilogue(scale="row", activation="relu")
    made, assembly = assemble_tiles(
        Problem("linear", "s4x2", "s4x2", "f16", bias="row", bias_element="f32", epilogue=epilogue),
        RegisterTiles("sm_89", 32, 16, 64, 2),
    )
    assert assembly.clean
    s, x, exact = operands(rng, "s4x2", "s4x2", (40, 20, 256))
    scale, bias = rng.random(40).astype(np.float32) / 64, rng.standard_normal(40).astype(np.float32)
    y, _ = emulate(made, s, x, bias, {"scale": scale})
    np.testing.assert_allclose(y, np.maximum(exact * scale.astype(float) + bias, 0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120", "sm_120a"])
def test_targets_whose_assembler_emulates_it(target: str) -> None:
    message = f"{target} has no sparse product of s4x2×s4x2 that is one instruction; the first target with one is sm_80"
    with pytest.raises(ValueError, match=message):
        choose_tiles(
            Problem("linear", "s4x2", "s4x2", "s32"), (64, 64, 64, 1), TARGETS[target], 132, aligned_output=True
        )
