"""Scales of blocks on the emulator: single products, batches and gated pairs, near float64, from clean assembly."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from louver.choose.choose_tiles import choose_tiles, multiplies
from louver.compile.plan.register_tiles import RegisterTiles
from louver.frontend.builder import build_tile_ir
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem, Tile
from louver.ir.interpret import run_kernel
from louver.isa.targets import FP8_FP6_FP4, TARGETS
from louver.library.compiled import assemble_tiles
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product
from support.block_scales import SCALED, ScaledOperands, scaled_operands, scaled_pair

HAVE = ["sm_120a", "sm_120f", "sm_121a", "sm_121f"]
SMALL = RegisterTiles("sm_120a", 32, 16, 128, 2)
BATCHES: Any = ("dense", "sparse", "both")


def emulated(
    problem: Problem, tiles: RegisterTiles, given: ScaledOperands, bias: Any = None, **reads: Any
) -> np.ndarray:
    """The kernel's output, [..., M, N], from a clean assembly."""
    made, assembly = assemble_tiles(problem, tiles)
    assert assembly.clean, assembly.faults
    y, _ = emulate(made, given.s, given.x, bias, {"scale": given.of_rows, "dense_scale": given.of_tokens, **reads})
    return y.swapaxes(-1, -2) if problem.kind == "linear" else y


def agree(y: np.ndarray, given: ScaledOperands, epilogue: Epilogue, bias: Any = None, **reads: Any) -> None:
    """Each entry of `y` [..., M, N] is near float64."""
    entries = np.broadcast_shapes(given.left.shape[:-2], given.right.shape[:-2])
    lefts = np.broadcast_to(given.left, (*entries, *given.left.shape[-2:]))
    rights = np.broadcast_to(given.right, (*entries, *given.right.shape[-2:]))
    assert y.shape[:-2] == entries
    for entry in np.ndindex(entries):
        own = {name: value[entry].T if name == "c" else value for name, value in reads.items()}
        wanted = exact_product(lefts[entry], rights[entry].T, bias, epilogue.after, own)
        agreement = compare(y[entry], *wanted, lefts.shape[-1], "f32", "f32")
        assert agreement.ok, (entry, agreement)


def test_the_targets_with_scales() -> None:
    for a, b in itertools.product(FP8_FP6_FP4, FP8_FP6_FP4):
        assert [name for name, each in TARGETS.items() if multiplies(each, a, b, scaled=True)] == HAVE


@pytest.mark.parametrize("target", ["sm_89", "sm_90a", "sm_100a", "sm_120"])
def test_targets_without_scales(target: str) -> None:
    message = f"{target} has no sparse product of e4m3×e4m3 with scales of blocks that is one .* with one is sm_120a"
    problem = Problem("linear", "e4m3", "e4m3", epilogue=SCALED)
    with pytest.raises(ValueError, match=message):
        choose_tiles(problem, (64, 64, 64, 1), TARGETS[target], 132, aligned_output=True)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("target", HAVE)
def test_the_librarys_tiles_with_scales_assemble(target: str, gated: bool) -> None:
    batches = (None, "dense") if gated else (None, *BATCHES)
    cases: Any = [*((16, each) for each in batches), (4096, batches[-1])]
    for n, batch in cases:
        epilogue = replace(SCALED, gated=gated, activation="silu")
        problem = Problem("linear", "e2m1", "e4m3", "f16", bias="row", epilogue=epilogue, batch=batch)
        count = 1 if batch is None else 3
        tiles = choose_tiles(problem, (4096, n, 4096, count), TARGETS[target], 170, aligned_output=True)
        made, assembly = assemble_tiles(problem, tiles)
        assert assembly.clean and made.schedule == tiles, assembly.faults


@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize(("m", "n", "k"), [(17, 1, 8), (72, 33, 516), (64, 24, 68)])
def test_tails_with_scales_and_an_epilogue(rng: np.random.Generator, depth: int, m: int, n: int, k: int) -> None:
    epilogue = replace(SCALED, dense_bias="f32", activation="relu")
    problem = Problem("matmul", "e3m2", "e2m1", "f32", bias="row", bias_element="f32", epilogue=epilogue)
    given, bias = scaled_operands(rng, ("e3m2", "e2m1"), (m,), (n,), k), rng.standard_normal(m).astype(np.float32)
    added = {"dense_bias": rng.standard_normal(n).astype(np.float32)}
    y = emulated(problem, RegisterTiles("sm_121a", 16, 8, depth, 1, 1, aligned_output=False), given, bias, **added)
    agree(y, given, epilogue, bias, **added)


@pytest.mark.parametrize(
    ("a", "b"), [("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m3", "e3m2"), ("e3m2", "e5m2"), ("e2m1", "e2m1")]
)
@pytest.mark.parametrize(("m", "n", "k"), [(40, 19, 304), (64, 24, 192)])
def test_scales_of_blocks(rng: np.random.Generator, a: str, b: str, m: int, n: int, k: int) -> None:
    problem = Problem("linear", a, b, "f32", epilogue=SCALED)
    name = f"kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{a}.{b}.f32.ue8m0"
    assert name in assemble_tiles(problem, SMALL)[0].tiles.ptx
    given = scaled_operands(rng, (a, b), (m,), (n,), k)
    agree(emulated(problem, SMALL, given), given, SCALED)


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("entries", "m", "n", "k"), [(3, 40, 19, 300), (1, 33, 5, 64), (3, 17, 24, 132)])
def test_batches(rng: np.random.Generator, kind: Any, batch: Any, entries: int, m: int, n: int, k: int) -> None:
    epilogue = replace(SCALED, c="f32", activation="silu", out_scale="number")
    problem = Problem(kind, "e2m1", "e4m3", "f32", bias="row", bias_element="f32", epilogue=epilogue, batch=batch)
    rows, tokens = ((entries,) if has else () for has in (problem.batched_a, problem.batched_b))
    given, bias = scaled_operands(rng, ("e2m1", "e4m3"), (*rows, m), (*tokens, n), k), rng.random(m).astype(np.float32)
    c = rng.standard_normal((entries, n, m)).astype(np.float32)
    reads = {"beta": -1.5, "out_scale": 0.75}
    laid = c if kind == "linear" else np.ascontiguousarray(c.swapaxes(-1, -2))
    # Tiles of several warps along both axes; the last ones reach beyond M, N and K.
    y = emulated(
        problem, RegisterTiles("sm_120a", 32, 16, 128, 4, 1, aligned_output=False), given, bias, c=laid, **reads
    )
    agree(y, given, epilogue, bias, c=c, **{name: np.float64(value) for name, value in reads.items()})


@pytest.mark.parametrize(
    ("activation", "half", "n", "k"),
    [(None, 8, 1, 8), ("relu", 24, 19, 300), ("gelu", 40, 9, 192), ("gelu_tanh", 16, 7, 68), ("silu", 24, 5, 132)],
)
def test_gated_pairs(rng: np.random.Generator, activation: Any, half: int, n: int, k: int) -> None:
    epilogue = replace(SCALED, alpha=True, dense_bias="f32", activation=activation, gated=True)
    problem = Problem("linear", "e3m2", "e5m2", "f32", bias="row", bias_element="f32", epilogue=epilogue)
    given = scaled_pair(rng, ("e3m2", "e5m2"), half, (n,), k)
    bias = rng.standard_normal(2 * half).astype(np.float32)
    reads = {"alpha": 0.5, "dense_bias": rng.standard_normal(n).astype(np.float32)}
    for tiles in (replace(SMALL, k_multiple=4), RegisterTiles("sm_120a", 64, 8, 64, 4, 1, aligned_output=False)):
        agree(emulated(problem, tiles, given, bias, **reads), given, epilogue, bias, **reads)


def test_k_is_a_multiple_of_what_the_schedule_says(rng: np.random.Generator) -> None:
    given = scaled_operands(rng, ("e4m3", "e4m3"), (16,), (8,), 68)
    with pytest.raises(ValueError, match="takes K in multiples of 16, got 68: give it a smaller k_multiple"):
        emulated(Problem("linear", "e4m3", "e4m3", "f32", epilogue=SCALED), SMALL, given)


def test_rows_of_the_output_are_whole_chunks_if_the_schedule_says_so(rng: np.random.Generator) -> None:
    given = scaled_operands(rng, ("e4m3", "e4m3"), (24,), (8,), 64)
    with pytest.raises(ValueError, match="output rows in multiples of 16 bytes, got 24: give it aligned_output=False"):
        emulated(Problem("linear", "e4m3", "e4m3", "e4m3", epilogue=SCALED), replace(SMALL, aligned_output=True), given)


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("entries", [1, 3])
def test_a_batch_of_tokens_by_a_gated_pair(rng: np.random.Generator, kind: Any, entries: int) -> None:
    epilogue = replace(SCALED, activation="gelu", gated=True)
    problem = Problem(kind, "e2m1", "e2m3", "f32", epilogue=epilogue, batch="dense")
    given = scaled_pair(rng, ("e2m1", "e2m3"), 40, (entries, 9), 196)
    tiles = RegisterTiles("sm_121a", 32, 8, 64, 2, 4, aligned_output=False)
    agree(emulated(problem, tiles, given), given, epilogue)


@pytest.mark.parametrize("batch", [None, *BATCHES])
def test_the_interpreter_scales_blocks(rng: np.random.Generator, batch: Any) -> None:
    m, n, k, entries = 16, 8, 192, 2
    problem = Problem("matmul", "e2m1", "e4m3", "f32", epilogue=SCALED, batch=batch)
    rows, tokens = ((entries,) if has else () for has in (problem.batched_a, problem.batched_b))
    given = scaled_operands(rng, ("e2m1", "e4m3"), (*rows, m), (*tokens, n), k)
    sizes = {"M": m, "N": n, "K": k, "stride_a": k, "stride_b": k, "stride_d": n}
    d = np.full((m, n) if batch is None else (entries, m, n), np.nan, np.float32)
    if batch is not None:
        sizes |= {"batch": entries, "batch_stride_d": m * n}
        sizes |= {"batch_stride_a": m * k} if rows else {}
        sizes |= {"batch_stride_b": n * k} if tokens else {}
    arrays = {"a": given.s, "b": given.x, "d": d, "scale": given.of_rows, "dense_scale": given.of_tokens}
    run_kernel(build_tile_ir(problem, Tile(16, 8, 128)), (1, 1, 1 if batch is None else entries), {**arrays, **sizes})
    np.testing.assert_allclose(d, given.exact.swapaxes(-1, -2), rtol=1e-6)


@pytest.mark.parametrize("batch", [None, "both"])
def test_problems_without_scales(batch: Any) -> None:
    with pytest.raises(
        ValueError, match="scales of blocks are for operands of e4m3, .*, got f16×f16: give scales of f32"
    ):
        Problem("linear", "f16", "f16", epilogue=SCALED, batch=batch)
