"""Products whose tiles are cut in two for pairs of CTAs, on the emulator: exact, of every type, store and structure, in every order."""

from __future__ import annotations

import numpy as np
import pytest

from louver import compress, prune
from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support import cut_products
from support.cut_products import ORDERS, STRUCTURES, TYPES, check_exact
from support.products import assert_close, operands

NARROW = cut_products.NARROW.changed(work="pairs")

SCHEDULES = {
    **{name: schedule.changed(work="pairs") for name, schedule in STRUCTURES.items()},
    "narrowest": NARROW.changed(tile_n=16),
    "dependent": NARROW.changed(metadata="stage", dependent=True),
}


def cut(schedule: Schedule, m: int, n: int, k: int, whole: int) -> Ranges:
    """Two ranges of each tile behind the first `whole` ones."""
    tiles, granule = -(-m // schedule.tile.m) * -(-n // schedule.tile.n), 256 // schedule.tile.k
    length = -(-k // (2 * granule * schedule.tile.k)) * granule
    assert -(-k // schedule.tile.k) > length
    return Ranges(tiles, min(whole, tiles), 2, length)


def check(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order,
    whole: int,
    sm_count: int,
) -> None:
    """A product with `whole` tiles that are not cut, a multiple of the CTAs, and as many pairs at most behind them."""
    check_exact(rng, problem, sizes, schedule, order, cut(schedule, *sizes, whole), sm_count)


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_type(rng: np.random.Generator, name: str, types: str) -> None:
    problem, schedule = TYPES[types], SCHEDULES[name]
    if problem.accumulate == "promoted" or problem.a != "f16":
        schedule = schedule.changed(tile_k=128, stages=min(2, schedule.ring.stages))
    check(rng, problem, (2 * schedule.tile.m + 8, schedule.tile.n - 6, 1228), schedule, Seeded(7), 2, 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [257, 511, 513, 1025, 2304])
def test_every_tail_of_k(rng: np.random.Generator, k: int, order: str) -> None:
    """A second range of one column, and of all of a load of metadata."""
    schedule = NARROW.changed(tile_n=16)
    check(rng, Problem("matmul", out="f32"), (65, 9, k), schedule, ORDERS[order], 0, 2)


@pytest.mark.parametrize(("whole", "sm_count"), [(0, 18), (0, 64), (6, 6), (8, 4), (8, 8), (8, 3), (9, 2)])
def test_any_number_of_whole_tiles_and_of_ctas(rng: np.random.Generator, whole: int, sm_count: int) -> None:
    """None, some and all of 9 tiles are whole; CTAs have several items each, or one."""
    check(rng, Problem("linear"), (264, 40, 600), NARROW.changed(tile_n=16), Seeded(whole), whole, sm_count)


@pytest.mark.parametrize("layout", ["k_major", "n_major"])
def test_a_batch(rng: np.random.Generator, layout: str) -> None:
    problem = Problem("matmul", out="f32", b_layout=layout, batch="both")  # type: ignore[arg-type]
    a = prune(rng.integers(-4, 5, (3, 130, 520)).astype(np.float16), "2:4")
    b = rng.integers(-4, 5, (3, 520, 40)).astype(np.float16)
    dense = b if layout == "n_major" else np.ascontiguousarray(b.swapaxes(1, 2))
    compiled = compile_product(problem, NARROW.changed(tile_n=64))
    y, _ = emulate(compiled, compress(a, "2:4"), dense, sm_count=4, order=Seeded(1), ranges=Ranges(6, 4, 2, 8))
    np.testing.assert_array_equal(y, a.astype(np.float64) @ b.astype(np.float64))


def test_dense_tiles_of_two_boxes(rng: np.random.Generator) -> None:
    """Their descriptors say how far the boxes are apart, beside bits that an address of the second CTA has."""
    problem = Problem("matmul", out="f32", b_layout="n_major")
    check(rng, problem, (130, 120, 520), NARROW.changed(tile_n=128), Seeded(2), 0, 4)


@pytest.mark.parametrize("types", ["f16", "f16-sums", "promoted"])
def test_results_are_those_of_two_ranges_in_every_order(rng: np.random.Generator, types: str) -> None:
    """Bit for bit, for data whose sums round; and within the bound of numerics."""
    problem = TYPES[types]
    schedule = NARROW.changed(tile_k=128, stages=2) if types == "promoted" else NARROW
    given = operands(rng, 130, 24, 1300, problem.a, "normal", dense=problem.b, bias=problem.bias_element)
    ranges, bias = cut(schedule, 130, 24, 1300, 0), given.bias if problem.bias else None

    def results(work: str, order: Order) -> np.ndarray:
        compiled = compile_product(problem, schedule.changed(work=work))
        return emulate(compiled, given.s, given.b.T, bias, sm_count=4, order=order, ranges=ranges)[0]

    expected = results("ranges", Seeded(0))
    assert_close(expected.T, given, bias=problem.bias is not None, accumulate=problem.accumulate)
    for order in (Earliest(), Latest(), Seeded(0), Seeded(1)):
        y = results("pairs", order)
        np.testing.assert_array_equal(y.view(f"u{y.itemsize}"), expected.view(f"u{y.itemsize}"))
