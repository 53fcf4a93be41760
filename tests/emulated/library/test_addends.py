"""C in the epilogue, by loads of pairs where all of them are aligned: every type, layout and store, on tails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Seeded
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.fused import fused_operands

pytestmark = pytest.mark.sampled(7, every=2)

BASE = Schedule.of(tile_n=64, stages=2)

STORES: dict[str, dict[str, Any]] = {
    "direct": {},
    "bulk": {"store": "bulk"},
    "in chunks": {"store": "bulk", "staging": 32},
    "one group": {"tile_n": 8},
    "five groups": {"tile_n": 40},
}


def run(problem: Problem, rng: np.random.Generator, m: int, n: int, gap: int, **schedule: Any) -> np.ndarray:
    """The result [M, N], found close to float64's; of random data that the same generator gives again."""
    given = fused_operands(rng, problem, m, n, 72)
    compiled = compiled_product(problem, BASE.changed(**schedule))
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    order = Earliest() if gap else Seeded(1)
    y, _ = emulate(compiled, given.s, dense, None, given.for_kernel, gap=gap, sm_count=2, order=order)
    y = y.T if problem.kind == "linear" else y
    given.assert_close(y)
    return y


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("c", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("kind", ["matmul", "linear"])
def test_every_gap_between_rows(kind: str, c: str, store: str) -> None:
    """Gaps of even and odd numbers of elements give the same bits: rows are read in pairs, or element by element."""
    problem = Problem(kind, "f16", "f16", "f16", epilogue=Epilogue(alpha=True, c=c))
    sizes = [(136, 72)] if "bulk" in STORES[store].values() else [(70, 74), (67, 73), (1, 2), (129, 1)]
    for m, n in sizes:
        results = [run(problem, np.random.default_rng(m), m, n, gap, **STORES[store]) for gap in (0, 1, 2)]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("out", ["f32", "bf16", "e4m3"])
def test_c_of_another_type_than_the_output(rng: np.random.Generator, out: str) -> None:
    for c in ("f16", "f32"):
        problem = Problem("matmul", "e4m3", "e4m3", out, epilogue=Epilogue(c=c, activation="relu"))
        for schedule in ({}, {"store": "bulk"}, {"tile_m": 256, "tile_n": 32, "store": "bulk"}):
            run(problem, rng, 70, 80, 2, **({"tile_k": 128} | schedule))


@pytest.mark.parametrize("kind", ["matmul", "linear"])
def test_beside_vectors_and_in_clusters(rng: np.random.Generator, kind: str) -> None:
    problem = Problem(kind, "bf16", "bf16", "f32", epilogue=Epilogue(dense_scale="column", c="bf16"))
    for store in ("direct", "bulk"):
        run(problem, rng, 72, 80, 2, store=store, cluster=2)


def test_pairs_are_read_by_one_load() -> None:
    """Beside the loads one by one, for what is not aligned, there is one for each two of them."""
    for c, wide, narrow in (("f16", "ld.global.b32", "ld.global.b16"), ("f32", "ld.global.v2.f32", "ld.global.f32")):
        ptx = compiled_product(Problem("matmul", epilogue=Epilogue(c=c)), BASE).ptx
        metadata = compiled_product(Problem("matmul"), BASE).ptx.count(wide)
        assert ptx.count(narrow) >= 2 * (ptx.count(wide) - metadata) > 0
