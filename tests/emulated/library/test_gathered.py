"""Products with vectors N:M@L on the emulator, their rows of K gathered: exact, of every structure and every class of L."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from louver.compile.plan.schedule import Schedule
from louver.compile.products import compile_product
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import element_type
from louver.formats.lists import GatheredRows, gathered_rows, picks
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.isa.targets import SM_90A
from louver.library.configure import choose
from louver.library.emulate import emulate
from louver.library.ranges import Ranges
from louver.library.reference import exact_product
from louver.ptx.assembler import assemble
from support.gathered import vectors
from support.products import LARGEST

pytestmark = pytest.mark.sampled(10)

NARROW = Schedule.of(tile_n=64, stages=3)

SCHEDULES = {
    "narrow": NARROW,
    "spans-of-64": NARROW.changed(tile_n=32),
    "spans-of-32": NARROW.changed(tile_n=16, stages=4),
    "three-boxes": NARROW.changed(tile_n=192, stages=2),
    "wide-step": NARROW.changed(tile_k=128, stages=2),
    "two-blocks": NARROW.changed(tile_m=256, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, consumers=3),
    "one-consumer": NARROW.changed(tile_m=64, consumers=1, stages=1, in_flight=0),
    "bulk": NARROW.changed(store="bulk", staging=32),
    "ranges": NARROW.changed(work="ranges"),
    "dependent": NARROW.changed(dependent=True),
}

LANES = Schedule.of(tile_n=64, tile_k=32, stages=3, in_flight=0)

CUDA_CORES = {
    "narrow": LANES,
    "two-columns": LANES.changed(tile_n=128, stages=2),
    "two-blocks": LANES.changed(tile_m=256),
    "short-step": LANES.changed(tile_k=16),
    "few": LANES.changed(tile_n=32),
    "fewest": LANES.changed(tile_n=16),
    "one-consumer": LANES.changed(tile_m=128, consumers=1, stages=1),
    "ranges": LANES.changed(work="ranges"),
    "dependent": LANES.changed(dependent=True),
}

PICKED = LANES.changed(metadata="stage", consumers=1, tile_m=64, stages=2)

PICKING = {
    "one-consumer": PICKED,
    "two-consumers": LANES.changed(metadata="stage", stages=2),
    "two-blocks": PICKED.changed(tile_m=128, tile_n=128, stages=1),
    "short-step": PICKED.changed(tile_k=16, stages=3),
    "few": PICKED.changed(tile_n=32),
    "fewest": PICKED.changed(tile_n=16, tile_k=16),
    "ranges": PICKED.changed(work="ranges"),
    "dependent": PICKED.changed(dependent=True),
}

PATTERNS = ("2:8@128", "4:8@64", "1:8@192", "2:4@32", "3:5@33", "6:8", "1:16@1000")
"""A list for a tile or for a warpgroup; unions of several windows, of parts of windows, and of almost all of K."""

F32 = {"a": "f32", "b": "f32", "out": "f32"}

FEW = (136, 40, 102)
"""M, N, K for CUDA cores, whose multiply-adds take the emulator long: two tiles of rows, two steps and more, a tail of each size."""

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}


def problem_of(pattern: str, **options: Any) -> Problem:
    return Problem(**{"kind": "matmul", "pattern": pattern, "b_layout": "n_major", **options})


def check(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order = ORDERS["seeded"],
) -> GatheredRows:
    m, n, k = sizes
    assert problem.pattern is not None
    given = vectors(rng, m, k, problem.pattern, problem.a)
    # Of f32, numbers that tf32 cannot hold.
    most = 1 << 14 if problem.a == "f32" else LARGEST
    b = rng.integers(-most, most + 1, (k, n)).astype(given.values.dtype)
    bias = rng.integers(-LARGEST, LARGEST + 1, m).astype(given.values.dtype) if problem.bias else None
    rows = given.rows(schedule)
    steps, tiles = -(-rows.kept // schedule.tile.k), -(-m // schedule.tile.m) * -(-n // schedule.tile.n)
    ranges = Ranges(tiles, 1, min(steps, 2), -(-steps // 2)) if schedule.cuts else None
    y, report = emulate(compile_product(problem, schedule), rows, b, bias, sm_count=4, order=order, ranges=ranges)
    assert (report.products > 0) == (unit_of(problem.pattern, problem.a) == "wgmma")
    expected, _ = exact_product(given.a, b, bias)
    got = y.T if problem.kind == "linear" else y
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(y.dtype).astype(np.float64))
    return rows


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_pattern(rng: np.random.Generator, name: str, pattern: str) -> None:
    check(rng, problem_of(pattern), (264, 72, 508), SCHEDULES[name])


@pytest.mark.parametrize("pattern", ["3:8@128", "4:8@64", "3:5@33"])
@pytest.mark.parametrize("name", CUDA_CORES)
def test_every_structure_on_cuda_cores(rng: np.random.Generator, name: str, pattern: str) -> None:
    """Of numbers that tf32 cannot hold, with tails of every size."""
    check(rng, problem_of(pattern, **F32), FEW, CUDA_CORES[name])


@pytest.mark.parametrize("pattern", ["3:8@128", "4:8@32", "5:7@16", "3:8@48"])
@pytest.mark.parametrize("name", PICKING)
def test_every_structure_that_picks_rows(rng: np.random.Generator, name: str, pattern: str) -> None:
    """Windows of all rows and of 16; groups that steps cut."""
    check(rng, problem_of(pattern, **F32), FEW, PICKING[name])


def test_rows_that_no_window_picks_are_not_multiplied(rng: np.random.Generator) -> None:
    """They are copied, NaN and all, and nothing past a tensor's columns is picked."""
    given = vectors(rng, 64, 100, "2:8@32", "f32")
    b = rng.integers(-4, 5, (100, 50)).astype(np.float32)
    expected, _ = exact_product(given.a, b)
    b[np.setdiff1d(np.arange(100), given.windows)] = math.nan
    y, _ = emulate(compile_product(problem_of("2:8@32", **F32), PICKED), given.rows(PICKED), b)
    # A row that one window keeps may be none of the other's.
    np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64"])
def test_whatever_completes_first(rng: np.random.Generator, pattern: str, order: str) -> None:
    problem = problem_of(pattern, a="bf16", b="bf16", out="f32", kind="linear", bias="row")
    check(rng, problem, (200, 130, 1100), NARROW.changed(stages=2), ORDERS[order])


@pytest.mark.parametrize("size", [1, 7, 9, 63, 65, 127, 129, 257])
def test_tails(rng: np.random.Generator, size: int) -> None:
    for sizes in ((size, 65, 300), (65, size, 300), (65, 65, size)):
        check(rng, problem_of("3:8@64", out="f32"), sizes, NARROW.changed(stages=2))


def test_rows_that_no_list_names_are_not_read(rng: np.random.Generator) -> None:
    """Nor what is behind the columns of N: the first rows of K are NaN, and no window names them."""
    given = vectors(rng, 128, 512, "2:8@64")
    windows = np.where(given.windows < 8, given.windows + 1024, given.windows)
    values = np.where(np.repeat(windows, 64, axis=0) >= 512, 0, given.values).astype(np.float16)
    b = rng.integers(-4, 5, (512, 50)).astype(np.float16)
    expected, _ = exact_product(np.where(np.arange(512) < 8, 0, given.a), b)
    b[:8] = math.nan
    changed = type(given)(given.pattern, values, windows, given.a)
    y, _ = emulate(compile_product(problem_of("2:8@64"), NARROW), changed.rows(NARROW), b)
    np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("batch", ["dense", "both"])
def test_batches(rng: np.random.Generator, batch: Any) -> None:
    problem = problem_of("2:8@64", batch=batch)
    given = [vectors(rng, 200, 300, "2:8@64") for _ in range(2)]
    b = rng.integers(-4, 5, (2, 300, 70)).astype(np.float16)
    parts = [each.rows(NARROW) for each in given]
    rows, a = parts[0], [given[0].a, given[0].a]
    if batch == "both":
        values, lists = np.stack([p.values for p in parts]), np.concatenate([p.lists for p in parts])
        rows, a = GatheredRows(values, lists, rows.list_rows, 300), [each.a for each in given]
    y, _ = emulate(compile_product(problem, NARROW), rows, b, sm_count=3)
    for entry in range(2):
        expected, _ = exact_product(a[entry], b[entry])
        np.testing.assert_array_equal(y[entry].astype(np.float64), expected)


@pytest.mark.parametrize("n", [64, 256, 4096])
@pytest.mark.parametrize("pattern", ["4:8@256", "4:8@128", "4:8@64", "2:8@32"])
@pytest.mark.parametrize("element", ["bf16", "f32"])
def test_what_the_model_chooses_assembles_without_spills(pattern: str, n: int, element: str) -> None:
    problem = problem_of(pattern, a=element, b=element, out=element)
    schedule = choose(problem, 4096, n, SM_90A, 132, aligned_output=True)
    assembly = assemble(compile_product(problem, schedule).ptx, "sm_90a")
    assert assembly.clean, assembly.faults


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"cluster": 2}, "gathered rows are no multicast, got cluster 2"),
        ({"specialized": False, "tile_m": 64, "consumers": 1, "stages": 1, "in_flight": 0}, "by a producer, got"),
        (
            {"metadata": "stage"},
            "stages hold metadata of 2:4 operands, and rows to pick of f32, got 'stage' for 2:8@64",
        ),
    ],
)
def test_schedules_that_cannot_gather(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        compile_product(problem_of("2:8@64"), NARROW.changed(**changed))


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"tile_n": 256, "stages": 2}, "have 16, 32, 64, 128 columns, got 256"),
        ({"metadata": "barrier"}, "rows to pick of f32, got 'barrier' for 2:8@64"),
        ({"tile_k": 64}, "tile_k of f32 is 16 or 32, got 64"),
        ({"tile_k": 16, "tile_n": 16}, "128 threads gather 16 bytes each, got tile_k 16 of 16 columns, 64 such pieces"),
        ({"in_flight": 1}, "ends before the next begins, got in_flight 1: use 0"),
        ({"store": "bulk"}, "stored from registers, got store 'bulk': use 'direct'"),
    ],
)
def test_schedules_that_cuda_cores_refuse(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        compile_product(problem_of("2:8@64", **F32), LANES.changed(**changed))


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("2:8@33", "16 rows pick together, got windows of 33 rows: use metadata 'global'"),
        ("2:32@32", "a box has 256 rows of K at most, got 2:32@32, of which 32 columns come from 512"),
    ],
)
def test_patterns_of_which_threads_cannot_pick(pattern: str, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        compile_product(problem_of(pattern, **F32), PICKED)


def test_picks_outside_their_group_are_refused() -> None:
    pattern = Pattern.parse("2:8@16")
    with pytest.raises(ValueError, match="its own group, 0 to 7 for column 1, got 8 in window 0: give"):
        picks(np.array([[0, 8]]), pattern, 16, 32)
    with pytest.raises(ValueError, match="got windows of 8: use a multiple of 16"):
        picks(np.array([[0, 1]]), Pattern.parse("2:8@8"), 8, 32)


def test_a_box_of_an_odd_number_of_rows_is_filled_up(rng: np.random.Generator) -> None:
    """Bulk copies write at multiples of 128 bytes: 87 rows of 16 columns are none."""
    check(rng, problem_of("26:29@16", **F32), (70, 20, 140), PICKED.changed(tile_n=16, stages=3))


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_windows_that_keep_rows_past_k_alone(rng: np.random.Generator, element: str) -> None:
    pattern, schedule = Pattern.parse("2:22@16"), LANES if element == "f32" else NARROW
    values = np.zeros((40, 2), element_type(element).numpy)
    s = gathered_rows(values, np.array([[3, 4]] * 3), pattern.length, 2, schedule.tile.m)
    b = rng.integers(-4, 5, (2, 64)).astype(values.dtype)
    problem = problem_of("2:22@16", a=element, b=element, out=element)
    y, _ = emulate(compile_product(problem, schedule), s, b)
    np.testing.assert_array_equal(y, np.zeros((40, 64), y.dtype))


@pytest.mark.parametrize("n", [40, 1025, 4096])
@pytest.mark.parametrize("pattern", ["4:5@96", "8:32@32", "2:8@256"])
def test_batches_cut_into_ranges_assemble_without_spills(pattern: str, n: int) -> None:
    problem = problem_of(pattern, **F32, kind="linear", batch="both")
    schedule = choose(problem, 512, n, SM_90A, 132, k=1918, cuts=True, batch=4)
    assembly = assemble(compile_product(problem, schedule).ptx, "sm_90a")
    assert assembly.clean, assembly.faults


def test_rows_of_several_blocks_find_their_bias(rng: np.random.Generator) -> None:
    """A warp's rows follow each other in the tile: what the epilogue reads by row must follow."""
    problem = problem_of("2:8@32", **F32, kind="linear", bias="row")
    check(rng, problem, (136, 20, 70), PICKED.changed(tile_m=128, tile_n=32))
