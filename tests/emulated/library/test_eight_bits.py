"""Products of 8-bit floats and integers on the emulator: every mix of types, output, tail and store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from louver.choose.configure import choose, deepest
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library import reference
from louver.library.emulate import emulate
from louver.library.numerics import compare
from support.compiled import compiled_product
from support.products import OF_NUMBERS, Operands, assert_exact, operands

PAIRS = [pair for pair in OF_NUMBERS if element_type(pair[0]).bits == 8]

CASES = [(a, b, out) for a, b in PAIRS for out in OF_NUMBERS[a, b]]


def run(
    problem: Problem, given: Operands, order: Order, *, schedule: Schedule | None = None, sm_count: int = 132
) -> np.ndarray:
    """The emulated result, [M, N]."""
    m, n, _ = given.sizes
    chosen = schedule or choose(problem, m, n, SM_90A, 132)
    bias = given.bias if problem.bias else None
    y, report = emulate(compiled_product(problem, chosen), given.s, given.b.T, bias, sm_count=sm_count, order=order)
    assert report.products > 0
    return y.T if problem.kind == "linear" else y


def random_operands(rng: np.random.Generator, problem: Problem, m: int, n: int, k: int) -> Operands:
    return operands(rng, m, n, k, problem.a, "normal", dense=problem.b, bias=problem.bias_element)


def integers(rng: np.random.Generator, problem: Problem, m: int, n: int, k: int) -> Operands:
    return operands(rng, m, n, k, problem.a, dense=problem.b, bias=problem.bias_element)


@pytest.mark.parametrize(("a", "b", "out"), CASES)
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_every_mix_of_types_on_random_data(rng: np.random.Generator, kind: str, a: str, b: str, out: str) -> None:
    problem = Problem(kind, a, b, out, bias="row")
    given = random_operands(rng, problem, 70, 19, 150)
    y = run(problem, given, Seeded(int(rng.integers(99))))
    if problem.accumulate == "s32":
        expected = reference.product(given.a, given.b, given.bias, y.dtype)
        np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))
    else:
        exact, magnitude = reference.exact_product(given.a, given.b, given.bias)
        # The emulator rounds to f32 only, so the bound of f32 holds, not just the one of the hardware's 8-bit sums.
        agreement = compare(y, exact, magnitude, 150, out)
        assert agreement.ok, agreement


@pytest.mark.parametrize("k", [1, 2, 3, 5, 63, 64, 65, 127, 128, 129, 255, 257, 513, 1030])
@pytest.mark.parametrize(("a", "b", "out"), [("e4m3", "e5m2", "f32"), ("s8", "u8", "s32")])
def test_every_tail_of_k(rng: np.random.Generator, a: str, b: str, out: str, k: int) -> None:
    problem = Problem("matmul", a, b, out)
    given = integers(rng, problem, 65, 9, k)
    assert_exact(run(problem, given, Latest()), given)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (63, 7), (64, 8), (129, 33), (200, 130)])
@pytest.mark.parametrize(("a", "b", "out"), [("e5m2", "e5m2", "bf16"), ("u8", "s8", "f16")])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_tails_of_m_and_n(rng: np.random.Generator, kind: str, a: str, b: str, out: str, m: int, n: int) -> None:
    problem = Problem(kind, a, b, out, bias="row")
    given = integers(rng, problem, m, n, 70)
    assert_exact(run(problem, given, Earliest()), given, bias=True)


SCHEDULES = {
    "k64": Schedule.of(tile_n=32, tile_k=64, stages=3),
    "two-blocks": Schedule.of(tile_m=256, tile_n=64, tile_k=128, stages=2),
    "cluster": Schedule.of(tile_n=64, tile_k=128, stages=2, cluster=2),
    "bulk": Schedule.of(tile_n=64, tile_k=128, stages=3, store="bulk"),
    "bulk-cluster": Schedule.of(tile_n=64, tile_k=128, stages=2, cluster=2, store="bulk"),
    "three-consumers": Schedule.of(tile_m=192, tile_n=48, tile_k=128, stages=2, consumers=3),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("a", "b"), [("e4m3", "e4m3"), ("s8", "s8")])
@pytest.mark.parametrize("kind", ["linear", "matmul"])
def test_schedules(rng: np.random.Generator, kind: str, a: str, b: str, name: str) -> None:
    schedule = SCHEDULES[name]
    problem = Problem(kind, a, b, "bf16", bias="row")
    # A row pitch of 16-byte multiples for the bulk stores; several tiles and rounds of the ring a CTA.
    given = integers(rng, problem, 392, 136, 660)
    assert_exact(run(problem, given, Seeded(5), schedule=schedule, sm_count=2), given, bias=True)


def test_every_width_of_an_integer_tile(rng: np.random.Generator) -> None:
    problem = Problem("linear", "s8", "s8", "s32")
    for tile_n in (8, 24, 48, 112, 208, 256):
        given = random_operands(rng, problem, 66, tile_n - 1, 130)
        schedule = deepest(problem, Schedule.of(tile_n=tile_n, tile_k=128), SM_90A)
        assert_exact(run(problem, given, Earliest(), schedule=schedule), given)


def test_integer_sums_wrap(rng: np.random.Generator) -> None:
    problem = Problem("matmul", "s8", "s8", "s32", bias="row")
    given = random_operands(rng, problem, 64, 8, 64)
    given = replace(given, bias=np.full(64, np.iinfo(np.int32).max - 1000, np.int32))
    y = run(problem, given, Latest())
    expected = (given.a.astype(np.int64) @ given.b.astype(np.int64) + given.bias[:, None]).astype(np.int32)
    assert (expected < 0).any() and (expected > 0).any()
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("out", "store"), [("f16", "direct"), ("bf16", "direct"), ("f32", "direct"), ("f16", "bulk"), ("bf16", "bulk")]
)
def test_large_integer_sums_are_rounded_once(rng: np.random.Generator, out: str, store: str) -> None:
    # Just beyond a tie of bf16 by less than f32 can hold: rounding to f32 on the way would lose what breaks the tie.
    problem = Problem("matmul", "u8", "u8", out, bias="row")
    given = random_operands(rng, problem, 64, 64, 64)
    sums = given.a.astype(np.int64) @ given.b.astype(np.int64)
    tie = (1 << 24) + (1 << 16) + 1
    given = replace(given, bias=(tie - sums[:, 0]).astype(np.int32))
    y = run(problem, given, Latest(), schedule=Schedule.of(tile_n=64, tile_k=128, stages=2, store=store))
    if out == "bf16":
        assert (y[:, 0].astype(np.float64) == (1 << 24) + (1 << 17)).all()
    expected = reference.product(given.a, given.b, given.bias, y.dtype)
    np.testing.assert_array_equal(y.astype(np.float64), expected.astype(np.float64))


def test_8_bit_outputs_saturate(rng: np.random.Generator) -> None:
    problem = Problem("linear", "e4m3", "e4m3", "e4m3")
    given = random_operands(rng, problem, 64, 8, 64)
    given = replace(given, b=(given.b.astype(np.float32) * 64).astype(given.b.dtype))
    y = run(problem, given, Latest()).astype(np.float64)
    exact, magnitude = reference.exact_product(given.a, given.b)
    assert (np.abs(exact) > 500).any()
    assert np.abs(y).max() == 448
    assert compare(y, exact, magnitude, 64, "e4m3").ok


@pytest.mark.parametrize("bias", ["f16", "bf16", "f32"])
@pytest.mark.parametrize(("a", "b"), [("e4m3", "e5m2"), ("f16", "f16")])
def test_a_bias_of_each_type(rng: np.random.Generator, a: str, b: str, bias: str) -> None:
    problem = Problem("linear", a, b, "f32", bias="row", bias_element=bias)
    given = random_operands(rng, problem, 66, 9, 40)
    exact, magnitude = reference.exact_product(given.a, given.b, given.bias)
    agreement = compare(run(problem, given, Latest()), exact, magnitude, 40, "f32")
    assert agreement.ok, agreement


def test_infinities_and_nan_spread_along_their_row_and_column(rng: np.random.Generator) -> None:
    problem = Problem("matmul", "e5m2", "e5m2", "f32")
    given = random_operands(rng, problem, 64, 8, 64)
    given.b[3, 2], given.b[5, 4] = np.inf, np.nan
    y = run(problem, given, Latest())
    assert not np.isfinite(y[:, 2]).all() and np.isnan(y[:, 4]).any()
    assert np.isfinite(np.delete(y, (2, 4), axis=1)).all()
