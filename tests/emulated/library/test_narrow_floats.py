"""2:4 of floats below 8 bits: the targets of kind f8f6f4 assemble it cleanly, and the emulator is near float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import louver
from louver.compile.plan.register_tiles import RegisterTiles
from louver.formats.dtypes import NARROW_FLOATS, element_type
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.interpret import run_kernel
from louver.isa.targets import FP8_FP6_FP4, TARGETS
from louver.library.choose_tiles import choose_tiles, multiplies
from louver.library.compiled import assemble_tiles
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product

PAIRS = [pair for pair in itertools.product(FP8_FP6_FP4, FP8_FP6_FP4) if {*pair} & {*NARROW_FLOATS}]
HAVE = ["sm_120a", "sm_120f", "sm_121a", "sm_121f"]


def drawn(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers of a type: all codes of the narrow ones, multiples of 2^-3 below 8 of the others. So sums are exact."""
    element = element_type(name)
    if element.unused:
        return rng.integers(0, 1 << element.width, shape).astype(np.uint8).view(element.numpy)
    return (rng.integers(-7, 8, shape) / 8).astype(element.numpy)


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
def test_epilogues(rng: np.random.Generator, out: str) -> None:
    epilogue = Epilogue(
        scale="row", dense_scale="column", dense_bias="f32", c="f16", activation="gelu", out_scale="tensor"
    )
    problem = Problem("linear", "e2m3", "e2m1", out, bias="row", bias_element="bf16", epilogue=epilogue)
    made, assembly = assemble_tiles(problem, RegisterTiles("sm_120a", 32, 16, 64, 2))
    assert assembly.clean, assembly.faults
    s, x, _ = operands(rng, "e2m3", "e2m1", (40, 20, 256))
    reads = {
        "scale": rng.random(40).astype(np.float32) / 64,
        "dense_scale": rng.random(20).astype(np.float32),
        "dense_bias": rng.standard_normal(20).astype(np.float32),
        "c": rng.standard_normal((20, 40)).astype(np.float16),
        "beta": 0.5,
        "out_scale": np.float32([3.0]),
    }
    bias = rng.standard_normal(40).astype(element_type("bf16").numpy)
    y, _ = emulate(made, s, x, bias, reads)
    wanted = exact_product(np.asarray(s), x.T, bias, epilogue, {**reads, "c": reads["c"].T})
    agreement = compare(y.T, *wanted, 256, out, "fp8")
    assert agreement.ok, agreement


def test_a_batch_of_tokens_by_gated_pairs_with_sums_in_f16(rng: np.random.Generator) -> None:
    problem = Problem("linear", "e3m2", "e4m3", "f16", accumulate="f16", epilogue=Epilogue(gated=True), batch="dense")
    made, assembly = assemble_tiles(problem, RegisterTiles("sm_120a", 32, 16, 64, 2))
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


def scales(rng: np.random.Generator, rows: int, k: int) -> np.ndarray:
    """Powers of two from 1/8 to 8 for blocks of 64 columns, as bytes."""
    return rng.integers(124, 131, (rows, -(-k // 64))).astype(np.uint8)


def scaled(matrix: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """A matrix [rows, K] times the factors of its blocks, in float64."""
    wide = np.repeat(2.0 ** (factors.astype(np.float64) - 127), 64, axis=1)
    return matrix.astype(np.float64) * wide[:, : matrix.shape[1]]


SCALED = Epilogue(scale="blocks", dense_scale="blocks")


def test_the_targets_with_scales() -> None:
    for a, b in itertools.product(FP8_FP6_FP4, FP8_FP6_FP4):
        assert [name for name, each in TARGETS.items() if multiplies(each, a, b, scaled=True)] == HAVE


@pytest.mark.parametrize("target", ["sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_targets_without_scales(target: str) -> None:
    message = f"{target} has no sparse product of e4m3×e4m3 with scales of blocks that is one .* with one is sm_120a"
    problem = Problem("linear", "e4m3", "e4m3", epilogue=SCALED)
    with pytest.raises(ValueError, match=message):
        choose_tiles(problem, (64, 64, 64, 1), TARGETS[target], 132, aligned_output=True)


@pytest.mark.parametrize("target", HAVE)
def test_the_librarys_tiles_with_scales_assemble(target: str) -> None:
    for n in (16, 4096):
        problem = Problem("linear", "e2m1", "e4m3", "f16", epilogue=SCALED)
        tiles = choose_tiles(problem, (4096, n, 4096, 1), TARGETS[target], 170, aligned_output=True)
        made, assembly = assemble_tiles(problem, tiles)
        assert assembly.clean and made.schedule.target == target, assembly.faults


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(17, 1, 8), (72, 33, 516), (64, 24, 68)])
def test_tails_with_scales_and_an_epilogue(rng: np.random.Generator, depth: int, m: int, n: int, k: int) -> None:
    epilogue = Epilogue(scale="blocks", dense_scale="blocks", dense_bias="f32", activation="relu")
    problem = Problem("matmul", "e3m2", "e2m1", "f32", bias="row", bias_element="f32", epilogue=epilogue)
    made, _ = assemble_tiles(problem, RegisterTiles("sm_121a", 16, 8, depth, 1, 1, aligned_output=False))
    s, x, _ = operands(rng, "e3m2", "e2m1", (m, n, k))
    reads = {
        "scale": scales(rng, m, k),
        "dense_scale": scales(rng, n, k),
        "dense_bias": rng.standard_normal(n).astype(np.float32),
    }
    bias = rng.standard_normal(m).astype(np.float32)
    y, _ = emulate(made, s, x, bias, reads)
    left, right = scaled(np.asarray(s), reads["scale"]), scaled(x, reads["dense_scale"]).T
    agreement = compare(y, *exact_product(left, right, bias, epilogue.after, reads), k, "f32", "f32")
    assert agreement.ok, agreement


@pytest.mark.parametrize(
    ("a", "b"), [("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m3", "e3m2"), ("e3m2", "e5m2"), ("e2m1", "e2m1")]
)
@pytest.mark.parametrize(("m", "n", "k"), [(40, 19, 304), (64, 24, 192)])
def test_scales_of_blocks(rng: np.random.Generator, a: str, b: str, m: int, n: int, k: int) -> None:
    made, assembly = assemble_tiles(
        Problem("linear", a, b, "f32", epilogue=SCALED), RegisterTiles("sm_120a", 32, 16, 128, 2)
    )
    assert assembly.clean, assembly.faults
    assert f"kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{a}.{b}.f32.ue8m0" in made.tiles.ptx
    s, x, _ = operands(rng, a, b, (m, n, k))
    of_rows, of_tokens = scales(rng, m, k), scales(rng, n, k)
    y, _ = emulate(made, s, x, None, {"scale": of_rows, "dense_scale": of_tokens})
    left, right = scaled(x, of_tokens), scaled(np.asarray(s), of_rows).T
    agreement = compare(y, left @ right, np.abs(left) @ np.abs(right), k, "f32", "f32")
    assert agreement.ok, agreement


def test_the_interpreter_scales_blocks(rng: np.random.Generator) -> None:
    m, n, k = 16, 8, 192
    module = build_tile_ir(Problem("matmul", "e2m1", "e4m3", "f32", epilogue=SCALED), Tile(16, 8, 128))
    s, x, _ = operands(rng, "e2m1", "e4m3", (m, n, k))
    of_rows, of_tokens, d = scales(rng, m, k), scales(rng, n, k), np.full((m, n), np.nan, np.float32)
    sizes = {"M": m, "N": n, "K": k, "stride_a": k, "stride_b": k, "stride_d": n}
    run_kernel(module, (1, 1), {"a": s, "b": x, "d": d, "scale": of_rows, "dense_scale": of_tokens, **sizes})
    expected = scaled(np.asarray(s), of_rows) @ scaled(x, of_tokens).T
    np.testing.assert_allclose(d, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"a": "f16", "b": "f16"}, "scales of blocks are for one product of e4m3, .*, got f16×f16"),
        ({"a": "e2m1", "b": "e4m3", "batch": "dense"}, "got e2m1×e4m3 in a batch"),
    ],
)
def test_problems_without_scales(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Problem("linear", epilogue=SCALED, **fields)
