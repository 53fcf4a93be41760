"""Ways to accumulate on the emulator: sums in f16, two a register, and sums of 8-bit floats that are promoted to f32."""

from __future__ import annotations

import numpy as np
import pytest

from louver.choose.configure import deepest
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.frontend.epilogue import Epilogue
from louver.frontend.problem import PROMOTED_COLUMNS, Problem
from louver.isa.targets import SM_90A
from louver.library import reference
from louver.library.emulate import emulate
from louver.library.numerics import accumulation, compare
from support.compiled import compiled_product
from support.products import Operands, operands

MODES = {
    "f16": ("f16", "f16", "f16"),
    "f16 of 8 bits": ("e4m3", "e5m2", "f16"),
    "promoted": ("e5m2", "e4m3", "promoted"),
}
"""By name: sparse and dense operand, and the way to accumulate."""

SCHEDULES = {
    "one block": Schedule.of(tile_n=64, stages=3),
    "two blocks": Schedule.of(tile_m=256, tile_n=64, stages=2),
    "four consumers": Schedule.of(tile_m=256, tile_n=32, stages=2, consumers=4),
    "a few columns at a time": Schedule.of(tile_n=64, stages=2, staging=32),
    "cluster": Schedule.of(tile_n=32, stages=2, cluster=2),
    "nothing in flight": Schedule.of(tile_n=32, stages=2, in_flight=0),
    "metadata in the stages": Schedule.of(tile_n=32, stages=2, metadata="barrier"),
}

every_mode = pytest.mark.parametrize("mode", MODES)


def problem_of(kind: str, mode: str, out: str = "f32", **fields: object) -> Problem:
    a, b, accumulate = MODES[mode]
    return Problem(kind, a, b, out, accumulate=accumulate, **fields)  # type: ignore[arg-type]


def fitting(problem: Problem, schedule: Schedule, store: str = "direct") -> Schedule:
    """The schedule with the K tile that its operands want."""
    changed = schedule.changed(tile_k=1024 // element_type(problem.b).bits, store=store)
    return changed.changed(stages=min(schedule.ring.stages, deepest(problem, changed, SM_90A).ring.stages))


def run(problem: Problem, schedule: Schedule, given: Operands, order: Order, sm_count: int = 2) -> np.ndarray:
    """The emulated result, [M, N]."""
    bias = given.bias if problem.bias else None
    stored = given.b.T if problem.b_layout == "k_major" else given.b
    y, report = emulate(compiled_product(problem, schedule), given.s, stored, bias, sm_count=sm_count, order=order)
    assert report.products > 0
    return y.T if problem.kind == "linear" else y


def given_of(rng: np.random.Generator, problem: Problem, m: int, n: int, k: int, data: str) -> Operands:
    return operands(rng, m, n, k, problem.a, data, dense=problem.b, bias=problem.bias_element)  # type: ignore[arg-type]


def check(
    rng: np.random.Generator,
    problem: Problem,
    schedule: Schedule,
    m: int,
    n: int,
    k: int,
    order: Order,
    sm_count: int = 2,
) -> None:
    """Integers to the bit, normal data by the bound, and sums in f16 as the reference path rounds them."""
    bias = problem.bias is not None
    given = given_of(rng, problem, m, n, k, "integers")
    exact, _ = reference.exact_product(given.a, given.b, given.bias if bias else None)
    assert np.abs(exact).max() < 2048  # exact in f16
    y = run(problem, schedule, given, order, sm_count)
    np.testing.assert_array_equal(y.astype(np.float64), exact.astype(y.dtype).astype(np.float64))
    given = given_of(rng, problem, m, n, k, "normal")
    exact, magnitude = reference.exact_product(given.a, given.b, given.bias if bias else None)
    y = run(problem, schedule, given, order, sm_count)
    agreement = compare(y, exact, magnitude, k, problem.out, accumulation(problem.a, problem.accumulate))
    assert agreement.ok, agreement
    if problem.accumulate == "f16":
        given_bias = given.bias if bias else None
        same = reference.product(given.a, given.b, given_bias, y.dtype, accumulate="f16")
        np.testing.assert_array_equal(y.astype(np.float64), same.astype(np.float64))


@every_mode
@pytest.mark.parametrize(("kind", "store"), [("linear", "bulk"), ("matmul", "bulk"), ("linear", "direct")])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(rng: np.random.Generator, name: str, store: str, kind: str, mode: str) -> None:
    problem = problem_of(kind, mode, "f16", bias="row")
    schedule = fitting(problem, SCHEDULES[name], store)
    rows = schedule.tile.m * schedule.order.cluster + 16
    check(rng, problem, schedule, rows, schedule.tile.n + 8, 140, Seeded(int(rng.integers(99))), schedule.order.cluster)


@every_mode
@pytest.mark.parametrize("k", [1, 63, 65, 128, 129, 256, 257, 384, 511, 512, 513, 640, 1025])
def test_every_tail_of_k(rng: np.random.Generator, mode: str, k: int) -> None:
    problem = problem_of("linear", mode)
    check(rng, problem, fitting(problem, SCHEDULES["one block"]), 65, 9, k, Latest(), 1)


@every_mode
@pytest.mark.parametrize("order", [Earliest(), Latest(), Seeded(5)], ids=["earliest", "latest", "seeded"])
def test_several_tiles_of_one_cta_in_every_order_of_events(rng: np.random.Generator, order: Order, mode: str) -> None:
    problem = problem_of("matmul", mode, "bf16")
    check(rng, problem, fitting(problem, Schedule.of(tile_n=32, stages=3)), 129, 35, 700, order, 1)


@every_mode
@pytest.mark.parametrize("out", ["f32", "f16", "bf16", "e4m3", "s8"])
def test_every_output(rng: np.random.Generator, out: str, mode: str) -> None:
    problem = problem_of("linear", mode, out)
    given = given_of(rng, problem, 80, 48, 130, "normal")
    results = [
        run(problem, fitting(problem, Schedule.of(tile_n=32, stages=2), s), given, Latest()) for s in ("direct", "bulk")
    ]
    np.testing.assert_array_equal(results[0].astype(np.float64), results[1].astype(np.float64))
    exact, magnitude = reference.exact_product(given.a, given.b)
    agreement = compare(results[0], exact, magnitude, 130, out, accumulation(problem.a, problem.accumulate))
    assert agreement.ok, agreement


@every_mode
def test_epilogues_compute_in_f32_from_the_sums(rng: np.random.Generator, mode: str) -> None:
    problem = problem_of("linear", mode, "f32", bias="row", epilogue=Epilogue(alpha=True, activation="relu"))
    schedule = fitting(problem, Schedule.of(tile_n=32, stages=2))
    given = given_of(rng, problem, 70, 40, 200, "normal")
    y, _ = emulate(compiled_product(problem, schedule), given.s, given.b.T, given.bias, {"alpha": 0.375}, sm_count=2)
    reads = {"alpha": 0.375}
    how = accumulation(problem.a, problem.accumulate)
    exact, magnitude = reference.exact_product(given.a, given.b, given.bias, problem.epilogue, reads, how)
    agreement = compare(y.T, exact, magnitude, 200, "f32", how)
    assert agreement.ok, agreement
    assert 0.2 < (y == 0).mean() < 0.8


@pytest.mark.parametrize("mode", ["f16", "promoted"])
def test_gated_products(rng: np.random.Generator, mode: str) -> None:
    problem = problem_of("linear", mode, "f32", epilogue=Epilogue(activation="silu", gated=True))
    schedule = fitting(problem, Schedule.of(tile_n=32, stages=2))
    given = given_of(rng, problem, 96, 40, 200, "normal")
    y, _ = emulate(compiled_product(problem, schedule), given.s, given.b.T, sm_count=2)
    how = accumulation(problem.a, problem.accumulate)
    exact, magnitude = reference.exact_product(given.a, given.b, None, problem.epilogue, accumulate=how)
    agreement = compare(y.T, exact, magnitude, 200, "f32", how)
    assert agreement.ok, agreement


def test_an_n_major_operand_with_sums_in_f16(rng: np.random.Generator) -> None:
    problem = problem_of("matmul", "f16", "f16", b_layout="n_major")
    check(rng, problem, fitting(problem, Schedule.of(tile_n=64, stages=2)), 70, 66, 130, Latest())


def test_sums_in_f16_overflow_on_the_way(rng: np.random.Generator) -> None:
    """65,504 is the end of the registers, whatever the output's type."""
    problem = problem_of("linear", "f16")
    given = given_of(rng, problem, 64, 8, 64, "integers")
    given.a[:, ::2], given.a[:, 1::2] = 256.0, 0.0
    given.b[:32], given.b[32:] = 256.0, -256.0
    y = run(problem, fitting(problem, Schedule.of(tile_n=8, stages=2)), replace_values(given), Latest())
    assert np.isinf(y).all()


def replace_values(given: Operands) -> Operands:
    """The operands with `s` made anew from `a`."""
    import louver

    a = louver.prune(given.a, "2:4")
    return Operands(a, louver.compress(a, "2:4"), given.b, given.bias)


def test_promoted_sums_are_added_in_f32_group_by_group(rng: np.random.Generator) -> None:
    """The error that the emulator's exact instructions leave is that of f32 additions, one a group."""
    problem = problem_of("linear", "promoted")
    k = 4 * PROMOTED_COLUMNS
    given = given_of(rng, problem, 64, 16, k, "normal")
    y = run(problem, fitting(problem, Schedule.of(tile_n=16, stages=2)), given, Latest())
    total = np.zeros(y.shape, np.float32)
    for first in range(0, k, PROMOTED_COLUMNS):
        partial = np.zeros_like(total)
        for column in range(first, first + PROMOTED_COLUMNS, 64):
            part = slice(column, column + 64)
            exact = given.a[:, part].astype(np.float64) @ given.b[part].astype(np.float64)
            partial = (partial.astype(np.float64) + exact).astype(np.float32)
        total += partial
    np.testing.assert_array_equal(y, total)
