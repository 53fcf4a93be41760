"""Products whose K is cut into ranges, on the emulator: exact, of every type, store and structure, whatever CTA comes last."""

from __future__ import annotations

import numpy as np
import pytest

from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support import cut_products
from support.cut_products import ORDERS, STRUCTURES, TYPES, check_exact
from support.products import assert_close, operands

NARROW = cut_products.NARROW.changed(work="ranges")

SCHEDULES = {
    **{name: schedule.changed(work="ranges") for name, schedule in STRUCTURES.items()},
    "narrowest": NARROW.changed(tile_n=8),
    "cluster": NARROW.changed(tile_n=64, cluster=2),
}


def tiles_of(schedule: Schedule, m: int, n: int) -> int:
    """Tiles of a product, of a cluster counted as one."""
    return -(-m // (schedule.tile.m * schedule.order.cluster)) * -(-n // schedule.tile.n)


def check(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order,
    whole: int,
    columns: int,
    sm_count: int = 4,
) -> None:
    """A product with `whole` tiles that are not cut, and ranges of so many columns of the others."""
    m, n, k = sizes
    tiles = tiles_of(schedule, m, n)
    ranges = Ranges(tiles, min(whole, tiles), -(-k // columns), columns // schedule.tile.k)
    check_exact(rng, problem, sizes, schedule, order, ranges, sm_count)


@pytest.mark.sampled(7, every=5)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_type(rng: np.random.Generator, name: str, types: str) -> None:
    problem, schedule = TYPES[types], SCHEDULES[name]
    if problem.accumulate == "promoted" or problem.a != "f16":
        schedule = schedule.changed(tile_k=128, stages=min(2, schedule.ring.stages))
    check(rng, problem, (264, 72, 1228), schedule, Seeded(7), 2, 256)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [1, 255, 256, 257, 511, 513, 1025, 2304])
@pytest.mark.parametrize("columns", [256, 512])
def test_every_tail_of_k(rng: np.random.Generator, k: int, columns: int, order: str) -> None:
    """A last range of one column, of all of a load of metadata, and K within one range: a single part."""
    schedule = NARROW.changed(tile_n=16)
    check(rng, Problem("matmul", out="f32"), (65, 9, k), schedule, ORDERS[order], 0, columns)


@pytest.mark.parametrize("whole", [0, 1, 5, 9])
@pytest.mark.parametrize("sm_count", [1, 2, 7, 64])
def test_any_number_of_whole_tiles_and_of_ctas(rng: np.random.Generator, whole: int, sm_count: int) -> None:
    """None, some and all of the tiles are whole; CTAs have several items each, or one."""
    check(rng, Problem("linear"), (264, 40, 600), NARROW.changed(tile_n=16), Seeded(whole), whole, 256, sm_count)


@pytest.mark.parametrize("whole", [9, 7])
def test_a_partial_wave_of_one_column_takes_each_item_once(rng: np.random.Generator, whole: int) -> None:
    """A range that two CTAs take would be counted twice, and a tile that none takes would stay poisoned."""
    for sm_count in (3, 4, 5, 6, 7, 8):
        check(rng, Problem("linear"), (1092, 9, 600), NARROW.changed(tile_n=16), Seeded(whole), whole, 256, sm_count)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_part_comes_last(rng: np.random.Generator, seed: int) -> None:
    """Eight CTAs interleaved, each with one of eight parts: more than are read together."""
    check(rng, Problem("linear"), (128, 32, 2040), NARROW, Seeded(seed), 0, 256, 8)


@pytest.mark.parametrize("layout", ["k_major", "n_major"])
def test_a_batch(rng: np.random.Generator, layout: str) -> None:
    from louver import compress, prune

    problem = Problem("matmul", out="f32", b_layout=layout, batch="both")  # type: ignore[arg-type]
    a = prune(rng.integers(-4, 5, (3, 130, 520)).astype(np.float16), "2:4")
    b = rng.integers(-4, 5, (3, 520, 40)).astype(np.float16)
    dense = b if layout == "n_major" else np.ascontiguousarray(b.swapaxes(1, 2))
    compiled = compile_product(problem, NARROW.changed(tile_n=64))
    y, _ = emulate(compiled, compress(a, "2:4"), dense, sm_count=4, order=Seeded(1), ranges=Ranges(6, 2, 3, 4))
    np.testing.assert_array_equal(y, a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("types", ["f16", "f16-sums", "promoted"])
def test_results_are_the_same_in_every_order(rng: np.random.Generator, types: str) -> None:
    """Bit for bit, for data whose sums round; and within the bound of numerics."""
    problem = TYPES[types]
    schedule = NARROW.changed(tile_k=128, stages=2) if types == "promoted" else NARROW
    given = operands(rng, 130, 40, 1300, problem.a, "normal", dense=problem.b, bias=problem.bias_element)
    compiled = compile_product(problem, schedule)
    ranges = Ranges(tiles_of(schedule, 130, 40), 1, 3, 512 // schedule.tile.k)
    bias = given.bias if problem.bias else None
    found = [
        emulate(compiled, given.s, given.b.T, bias, sm_count=5, order=order, ranges=ranges)[0]
        for order in (Earliest(), Latest(), Seeded(0), Seeded(1))
    ]
    for y in found:
        assert_close(y.T, given, bias=problem.bias is not None, accumulate=problem.accumulate)
        np.testing.assert_array_equal(y.view(f"u{y.itemsize}"), found[0].view(f"u{y.itemsize}"))


def test_a_sum_of_negative_zeros_stays_negative() -> None:
    """A stand-in for a part that there is none of changes no sign."""
    a = np.zeros((64, 768), np.float16)
    a[:, ::4] = 1
    from louver import compress

    b = np.full((768, 8), -0.0, np.float16)
    compiled = compile_product(Problem("matmul", out="f32"), NARROW.changed(tile_n=8))
    whole = compile_product(Problem("matmul", out="f32"), Schedule.of(tile_n=8, stages=3))
    y, _ = emulate(compiled, compress(a, "2:4"), b.T, sm_count=3, ranges=Ranges(1, 0, 3, 4))
    expected, _ = emulate(whole, compress(a, "2:4"), b.T, sm_count=3)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(expected))
