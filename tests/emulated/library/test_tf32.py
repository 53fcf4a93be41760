"""Products of f32, which tensor cores read as tf32, 1:2 sparse, on the emulator: exact on small integers, within the bound on others."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.choose.configure import candidates_for
from louver.choose.demand import Demand
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from louver.library.numerics import compare
from louver.library.reference import exact_product
from louver.ptx.assembler import assemble
from support.compiled import compiled_product

pytestmark = pytest.mark.sampled(7, every=2)

NARROW = Schedule.of(tile_n=16, tile_k=32, stages=4, metadata="stage")

SCHEDULES = {
    "registers": Schedule.of(tile_n=64, tile_k=32, stages=3),
    "stage": NARROW,
    "barrier": NARROW.changed(metadata="barrier", stages=2),
    "wide-step": Schedule.of(tile_n=64, tile_k=64, stages=2, store="bulk"),
    "widest-step": NARROW.changed(tile_k=128, stages=2),
    "two-blocks": Schedule.of(tile_m=256, tile_n=64, tile_k=32, stages=3),
    "half": NARROW.changed(tile_m=64, tile_n=32, consumers=1),
    "ranges": Schedule.of(tile_n=64, tile_k=32, stages=3, work="ranges"),
    "pairs": Schedule.of(tile_n=64, tile_k=32, stages=3, work="pairs"),
    "dependent": NARROW.changed(dependent=True, resident=2),
    "cluster": Schedule.of(tile_n=64, tile_k=32, stages=3, cluster=2, store="bulk"),
}

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}


def problem(kind: str = "linear", **options: object) -> Problem:
    return Problem(**{"kind": kind, "a": "f32", "b": "f32", "out": "f32", "pattern": "1:2", **options})  # type: ignore[arg-type]


def integers(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    w, x, bias = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (n, k), (m,)))
    return louver.prune(w, "1:2"), x, bias


@pytest.mark.parametrize("kind", ["linear", "matmul"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure(rng: np.random.Generator, name: str, kind: str) -> None:
    w, x, bias = integers(rng, 200, 40, 300)
    compiled = compiled_product(problem(kind, bias="row"), SCHEDULES[name])
    y, report = emulate(compiled, louver.compress(w, "1:2"), x, bias, sm_count=3, order=Seeded(7))
    assert report.products > 0
    expected, _ = exact_product(w, x.T, bias)
    np.testing.assert_array_equal(y.T if kind == "linear" else y, expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [1, 2, 31, 33, 128, 129, 515])
def test_every_tail_of_k(rng: np.random.Generator, k: int, order: str) -> None:
    w, x, _ = integers(rng, 65, 9, k)
    y, _ = emulate(compiled_product(problem(), NARROW), louver.compress(w, "1:2"), x, order=ORDERS[order], sm_count=1)
    np.testing.assert_array_equal(y, x.astype(np.float64) @ w.T.astype(np.float64))


@pytest.mark.parametrize("out", ["f32", "bf16", "f16"])
def test_values_are_rounded_and_tokens_cut(rng: np.random.Generator, out: str) -> None:
    """Within the bound of tf32, and closer than two operands that are cut."""
    w = louver.prune(rng.standard_normal((128, 700)).astype(np.float32), "1:2")
    x = rng.standard_normal((24, 700)).astype(np.float32)
    s = louver.compress(w, "1:2")
    y, _ = emulate(compiled_product(problem(out=out), NARROW), s, x)
    expected, magnitude = exact_product(w, x.T)
    agreement = compare(y.T, expected, magnitude, 700, out, "tf32")
    assert agreement.ok, agreement
    if out == "f32":
        cut = [(each.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for each in (w, x)]
        error = np.abs(y.T - expected).mean()
        assert error < np.abs(cut[0] @ cut[1].T - expected).mean()


def test_an_epilogue_and_a_batch(rng: np.random.Generator) -> None:
    w = louver.prune(rng.integers(-4, 5, (3, 130, 70)).astype(np.float32), "1:2")
    x = rng.integers(-4, 5, (3, 40, 70)).astype(np.float32)
    wanted = problem("matmul", batch="both", epilogue=Epilogue(activation="relu"))
    y, _ = emulate(compiled_product(wanted, NARROW), louver.compress(w, "1:2"), x, sm_count=4)
    np.testing.assert_array_equal(y, np.maximum(w.astype(np.float64) @ x.swapaxes(1, 2).astype(np.float64), 0))


@pytest.mark.parametrize("n", [1, 64, 4096])
def test_candidates_assemble_without_spills(n: int) -> None:
    wanted = problem(bias="row", epilogue=Epilogue(activation="gelu"))
    for schedule, _ in candidates_for(Demand.of_problem(wanted), SM_90A, n, bulk=True):
        assembly = assemble(compiled_product(wanted, schedule).ptx, "sm_90a")
        assert assembly.clean, assembly.faults
