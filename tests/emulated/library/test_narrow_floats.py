"""2:4 of floats below 8 bits: the targets of kind f8f6f4 assemble it cleanly, and the emulator is near float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.choose.choose_tiles import choose_tiles, multiplies
from louver.compile.plan.register_tiles import RegisterTiles
from louver.formats.dtypes import NARROW_FLOATS, element_type
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.bulk import COPY_CHUNK
from louver.isa.targets import FP8_FP6_FP4, TARGETS
from louver.library.compiled import assemble_tiles
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product
from support.block_scales import drawn

PAIRS = [pair for pair in itertools.product(FP8_FP6_FP4, FP8_FP6_FP4) if {*pair} & {*NARROW_FLOATS}]
HAVE = ["sm_120a", "sm_120f", "sm_121a", "sm_121f"]


def operands(
    rng: np.random.Generator, a: str, b: str, sizes: tuple[int, int, int]
) -> tuple[louver.SparseTensor, np.ndarray, np.ndarray]:
    """A sparse weight, dense tokens [N, K], and the exact product [N, M]."""
    m, n, k = sizes
    s, x = louver.compress(drawn(rng, a, (m, k)), "2:4", method="magnitude"), drawn(rng, b, (n, k))
    return s, x, x.astype(np.float64) @ np.asarray(s).astype(np.float64).T


def test_the_targets() -> None:
    for a, b in PAIRS:
        assert [name for name, each in TARGETS.items() if multiplies(each, a, b)] == HAVE


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_each_pair_of_types(rng: np.random.Generator, a: str, b: str) -> None:
    made, assembly = assemble_tiles(Problem("linear", a, b, "f32"), RegisterTiles("sm_120a", 32, 16, 128, 2))
    assert assembly.clean, assembly.faults
    assert f"m16n8k64.row.col.kind::f8f6f4.f32.{a}.{b}.f32" in made.tiles.ptx
    s, x, expected = operands(rng, a, b, (40, 19, 304))
    y, _ = emulate(made, s, x)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("target", HAVE)
def test_the_librarys_tiles_assemble(target: str) -> None:
    kinds: Any = "linear", "matmul"
    for kind, (a, b), m, n in itertools.product(kinds, [("e2m1", "e2m1"), ("e3m2", "e4m3")], (4096,), (16, 4096)):
        problem = Problem(kind, a, b, "f16")
        tiles = choose_tiles(problem, (m, n, 4096, 1), TARGETS[target], 170, aligned_output=True)
        made, assembly = assemble_tiles(problem, tiles)
        assert assembly.clean and made.schedule == tiles, assembly.faults


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 8, 256), (17, 1, 8), (72, 33, 516), (64, 24, 68)])
def test_tails(rng: np.random.Generator, depth: int, m: int, n: int, k: int) -> None:
    tiles = RegisterTiles("sm_121a", 16, 8, depth, 1, 1, aligned_output=False)
    made, _ = assemble_tiles(Problem("matmul", "e2m1", "e2m3", "f32"), tiles)
    s, x, expected = operands(rng, "e2m1", "e2m3", (m, n, k))
    y, _ = emulate(made, s, x)
    np.testing.assert_array_equal(y, expected.T)


@pytest.mark.parametrize("out", ["f32", "f16", "bf16", "e4m3", "e5m2", "s8"])
@pytest.mark.parametrize("m", [40, 48])
def test_epilogues(rng: np.random.Generator, out: str, m: int) -> None:
    epilogue = Epilogue(
        scale="row", dense_scale="column", dense_bias="f32", c="f16", activation="gelu", out_scale="tensor"
    )
    problem = Problem("linear", "e2m3", "e2m1", out, bias="row", bias_element="bf16", epilogue=epilogue)
    tiles = RegisterTiles("sm_120a", 32, 16, 64, 2, aligned_output=m * element_type(out).bytes % COPY_CHUNK == 0)
    made, assembly = assemble_tiles(problem, tiles)
    assert assembly.clean, assembly.faults
    s, x, _ = operands(rng, "e2m3", "e2m1", (m, 20, 256))
    reads = {
        "scale": rng.random(m).astype(np.float32) / 64,
        "dense_scale": rng.random(20).astype(np.float32),
        "dense_bias": rng.standard_normal(20).astype(np.float32),
        "c": rng.standard_normal((20, m)).astype(np.float16),
        "beta": 0.5,
        "out_scale": np.float32([3.0]),
    }
    bias = rng.standard_normal(m).astype(element_type("bf16").numpy)
    y, _ = emulate(made, s, x, bias, reads)
    wanted = exact_product(np.asarray(s), x.T, bias, epilogue, {**reads, "c": reads["c"].T})
    agreement = compare(y.T, *wanted, 256, out, "fp8")
    assert agreement.ok, agreement


def test_a_batch_of_tokens_by_gated_pairs_with_sums_in_f16(rng: np.random.Generator) -> None:
    problem = Problem("linear", "e3m2", "e4m3", "f16", accumulate="f16", epilogue=Epilogue(gated=True), batch="dense")
    made, assembly = assemble_tiles(problem, RegisterTiles("sm_120a", 32, 16, 64, 2, 8))
    assert assembly.clean, assembly.faults
    gate, up = (louver.compress(drawn(rng, "e3m2", (24, 136)), "2:4", method="magnitude") for _ in range(2))
    x = drawn(rng, "e4m3", (3, 9, 136))
    y, _ = emulate(made, louver.gated(gate, up), x)
    for tokens, got in zip(x, y, strict=True):
        wanted = exact_product(
            np.asarray(louver.gated(gate, up)), tokens.T, None, problem.epilogue, accumulate="fp8 in f16"
        )
        agreement = compare(got.T, *wanted, 136, "f16", "fp8 in f16")
        assert agreement.ok, agreement


@pytest.mark.parametrize("target", ["sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_targets_without_the_kind(target: str) -> None:
    message = (
        f"{target} has no sparse product of e2m1×e5m2 that is one instruction; the first target with one is sm_120a"
    )
    with pytest.raises(ValueError, match=message):
        choose_tiles(Problem("linear", "e2m1", "e5m2"), (64, 64, 64, 1), TARGETS[target], 132, aligned_output=True)
