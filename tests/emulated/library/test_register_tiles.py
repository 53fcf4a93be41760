"""Library products as register tiles, for targets without warpgroup products, against float64."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import pytest

import louver
from louver.compile.plan.register_tiles import RegisterTiles
from louver.compile.problem_tiles import ProblemTiles, compile_problem_tiles
from louver.emulator import Earliest, Latest, Order
from louver.formats.dtypes import element_type
from louver.frontend.epilogue import NO_EPILOGUE
from louver.frontend.problem import Batch, Problem
from louver.isa.async_copy import AsyncCopy
from louver.isa.mma import Mma
from louver.library.emulate import emulate
from louver.ptx.module import Inst
from support.fused import EPILOGUES, FusedOperands, fused_operands

pytestmark = pytest.mark.sampled(4)

TARGETS = ("sm_80", "sm_120a")
"""A target of each way to assemble: the first with `mma.sp`, and one with less shared memory."""


@functools.lru_cache(maxsize=64)
def compiled(problem: Problem, schedule: RegisterTiles) -> ProblemTiles:
    return ProblemTiles.of(problem, schedule, compile_problem_tiles(problem, schedule))


def run(given: FusedOperands, target: str, tile: tuple[int, int] = (32, 32), warps: int = 2) -> np.ndarray:
    """The emulated result, [M, N]."""
    problem, (k, n) = given.problem, given.b.shape
    step = 128 // element_type(problem.b).bytes
    rows = len(given.a) // problem.rows_per_output
    inner = (rows if problem.kind == "linear" else n) * element_type(problem.out).bytes
    schedule = RegisterTiles(target, *tile, step, warps, min(k & -k, 16), inner % 16 == 0)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    y, _ = emulate(compiled(problem, schedule), given.s, dense, given.bias, given.for_kernel, sm_count=2)
    return y.T if problem.kind == "linear" else y


TYPES = [
    ("f16", "f16"),
    ("bf16", "f32"),
    ("f32", "f32"),
    ("s8", "s32"),
    ("s8", "f16"),
    ("f16", "e5m2"),
    ("e4m3", "bf16"),
]


@pytest.mark.parametrize("target", [*TARGETS, "sm_89"])
@pytest.mark.parametrize(("a", "out"), TYPES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_types(rng: np.random.Generator, kind: Literal["linear", "matmul"], a: str, out: str, target: str) -> None:
    if a == "e4m3" and target == "sm_80":
        pytest.skip("has none")
    problem = Problem(kind, a, a, out)
    given = fused_operands(rng, problem, 72, 40, 200)
    given.assert_close(run(given, target))


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 4), (33, 31, 68), (40, 9, 129), (17, 70, 1), (65, 3, 130)])
@pytest.mark.parametrize("layout", ["k_major", "n_major"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_tails(
    rng: np.random.Generator,
    kind: Literal["linear", "matmul"],
    layout: Literal["k_major", "n_major"],
    m: int,
    n: int,
    k: int,
) -> None:
    given = fused_operands(rng, Problem(kind, b_layout=layout), m, n, k)
    given.assert_close(run(given, "sm_80"))


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_option(rng: np.random.Generator, kind: Literal["linear", "matmul"], name: str) -> None:
    for a, out, target in (("f16", "f32", "sm_80"), ("s8", "s8", "sm_120a")):
        problem = Problem(kind, a, a, out, bias="row", epilogue=EPILOGUES[name])
        given = fused_operands(rng, problem, 80 if problem.epilogue.gated else 70, 19, 100)
        given.assert_close(run(given, target))


@pytest.mark.parametrize("order", [Latest(), Earliest()], ids=["latest", "earliest"])
@pytest.mark.parametrize(
    ("a", "target", "row"),
    [("f16", "sm_80", 128), ("s8", "sm_89", 128), ("bf16", "sm_120a", 128), ("f16", "sm_86", 64)],
)
def test_copies_among_products(rng: np.random.Generator, a: str, target: str, row: int, order: Order) -> None:
    """Copies begin among products; more steps than the ring has slots. row: bytes of a step of the dense operand."""
    problem = Problem("linear", a, a, "s32" if a == "s8" else "f32")
    step = row // element_type(a).bytes
    given = fused_operands(rng, problem, 200, 70, 5 * step + 16)
    made = compiled(problem, RegisterTiles(target, 256, 128, step, 8, 16, True))
    operations = [type(node.op) for node in made.kernel.body.walk() if isinstance(node, Inst)]
    copies = [place for place, kind in enumerate(operations) if kind is AsyncCopy]
    products = [place for place, kind in enumerate(operations) if kind is Mma]
    # Short steps are not rotated: their copies begin behind the products.
    assert (products[0] < copies[-1] < products[-1]) is (row == 128)
    y, _ = emulate(made, given.s, given.b.T, sm_count=2, order=order)
    given.assert_close(y.T)


@pytest.mark.parametrize("batch", ["dense", "sparse", "both"])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_batches(rng: np.random.Generator, kind: Literal["linear", "matmul"], batch: Batch) -> None:
    problem = Problem(kind, batch=batch, epilogue=NO_EPILOGUE)
    m, n, k, entries = 40, 24, 72, 3
    w = louver.prune(rng.standard_normal((entries if problem.batched_a else 1, m, k)).astype(np.float16), "2:4")
    x = rng.standard_normal((entries if problem.batched_b else 1, n, k)).astype(np.float16)
    s = louver.compress(w if problem.batched_a else w[0], "2:4")
    schedule = RegisterTiles("sm_80", 32, 32, 64, 2, 8, True)
    y, _ = emulate(compiled(problem, schedule), s, x if problem.batched_b else x[0], sm_count=2)
    expected = w.astype(np.float64) @ x.astype(np.float64).transpose(0, 2, 1)
    expected = np.broadcast_to(expected, (entries, m, n))
    expected = expected.transpose(0, 2, 1) if kind == "linear" else expected
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-2)
