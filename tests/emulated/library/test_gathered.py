"""Products with vectors N:M@L on the emulator, their rows of K gathered: exact, of every structure and every class of L."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from louver.choose.configure import choose
from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.dtypes import ELEMENT_TYPES, element_type
from louver.formats.lists import GatheredRows, gathered_rows, picks
from louver.formats.pattern import Pattern
from louver.frontend.problem import Problem
from louver.ir.product import unit_of
from louver.isa.memory import Store
from louver.isa.targets import SM_90A, WARPS_PER_WARPGROUP
from louver.library.emulate import emulate
from louver.library.numerics import accumulation, compare
from louver.library.reference import exact_product
from louver.ptx.assembler import assemble
from support.gathered import Vectors, vectors
from support.products import LARGEST, OF_NUMBERS, paired

pytestmark = pytest.mark.sampled(7, every=2)

NARROW = Schedule.of(tile_n=64, stages=3)

SCHEDULES = {
    "narrow": NARROW,
    "spans-of-64": NARROW.changed(tile_n=32),
    "spans-of-32": NARROW.changed(tile_n=16, stages=4),
    "three-boxes": NARROW.changed(tile_n=192, stages=2),
    "short-step": NARROW.changed(tile_k=32, stages=4),
    "shortest-step": NARROW.changed(tile_k=16, stages=4),
    "wide-step": NARROW.changed(tile_k=128, stages=2),
    "two-blocks": NARROW.changed(tile_m=256, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, consumers=3),
    "one-consumer": NARROW.changed(tile_m=64, consumers=1, stages=1, in_flight=0),
    "bulk": NARROW.changed(store="bulk", staging=32),
    "ranges": NARROW.changed(work="ranges"),
    "pairs": NARROW.changed(work="pairs"),
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

TURNED = {
    "one-part": NARROW.changed(tile_k=128),
    "short-step": NARROW.changed(tile_n=128, tile_k=64),
    "shortest-step": NARROW.changed(tile_n=256, tile_k=32),
    "three-parts": NARROW.changed(tile_n=192, tile_k=128, stages=2),
    "two-blocks": NARROW.changed(tile_m=256, tile_k=128, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, tile_k=128, consumers=3),
    "one-consumer": NARROW.changed(tile_m=64, tile_k=128, consumers=1, stages=1, in_flight=0),
    "bulk": NARROW.changed(tile_n=128, tile_k=128, store="bulk", staging=32),
    "ranges": NARROW.changed(tile_k=128, work="ranges"),
    "pairs": NARROW.changed(tile_k=128, work="pairs"),
    "dependent": NARROW.changed(tile_k=128, dependent=True),
}

F32 = {"a": "f32", "b": "f32", "out": "f32"}

E4M3 = {"a": "e4m3", "b": "e4m3", "out": "bf16"}

BYTES = [pair for pair in OF_NUMBERS if element_type(pair[0]).bits == 8]

FEW = (136, 40, 102)
"""M, N, K for CUDA cores, whose multiply-adds take the emulator long: two tiles of rows, two steps and more, a tail of each size."""

NARROWS = {"f16": NARROW, "bf16": NARROW, "e4m3": TURNED["one-part"], "s8": TURNED["short-step"]}

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
    b = rng.integers(0 if problem.b == "u8" else -most, most + 1, (k, n)).astype(element_type(problem.b).numpy)
    addends = element_type(problem.bias_element).numpy
    bias = rng.integers(-LARGEST, LARGEST + 1, m).astype(addends) if problem.bias else None
    rows = given.rows(schedule)
    steps, tiles = -(-rows.kept // schedule.tile.k), -(-m // schedule.tile.m) * -(-n // schedule.tile.n)
    ranges = Ranges(tiles, 1, min(steps, 2), -(-steps // 2)) if schedule.cuts else None
    ranges = paired(tiles, steps) if schedule.pairs else ranges
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


@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64", "3:5@33", "6:8"])
@pytest.mark.parametrize("name", TURNED)
def test_every_structure_that_turns_rows(rng: np.random.Generator, name: str, pattern: str) -> None:
    """Rows of whole pieces, and rows whose last piece is not whole."""
    for n in (80, 72):
        check(rng, problem_of(pattern, **E4M3), (264, n, 508), TURNED[name])


@pytest.mark.parametrize(("a", "b"), BYTES)
def test_every_pair_of_types_that_is_turned(rng: np.random.Generator, a: str, b: str) -> None:
    out = OF_NUMBERS[a, b][0]
    for schedule in (TURNED["one-part"], TURNED["short-step"]):
        check(rng, problem_of("3:8@64", a=a, b=b, out=out), (100, 51, 300), schedule)


@pytest.mark.parametrize(("a", "b"), [("s8", "s8"), ("u8", "s8"), ("e4m3", "e4m3"), ("e5m2", "e4m3")])
def test_turned_rows_of_any_data(rng: np.random.Generator, a: str, b: str) -> None:
    """Integers of all values bit for bit, normal floats by the bound."""
    given, schedule, kept = vectors(rng, 130, 500, "3:8@128"), TURNED["one-part"], ELEMENT_TYPES[a]
    values, dense = (drawn(rng, element, shape) for element, shape in ((a, given.values.shape), (b, (500, 77))))
    values[np.repeat(given.windows, 128, axis=0)[:130] >= 500] = 0
    whole = np.zeros((130, 504), kept.numpy)
    np.put_along_axis(whole, np.repeat(given.windows, 128, axis=0)[:130], values, axis=1)
    changed = Vectors(given.pattern, values, given.windows, whole[:, :500])
    problem = problem_of("3:8@128", a=a, b=b, out=OF_NUMBERS[a, b][0])
    y, _ = emulate(compile_product(problem, schedule), changed.rows(schedule), dense)
    expected, magnitude = exact_product(changed.a, dense)
    if not kept.floating:
        np.testing.assert_array_equal(y, expected)
        return
    agreement = compare(y, expected, magnitude, 500, problem.out, accumulation(a, problem.accumulate))
    assert agreement.ok, agreement


def drawn(rng: np.random.Generator, element: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = element_type(element)
    if kind.floating:
        return rng.standard_normal(shape).astype(kind.numpy)
    return rng.integers(0, 256, shape).astype(np.uint8).view(kind.numpy)


def test_a_warp_stores_turned_words_to_all_banks(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the swizzle: of the producer's stores of words, no two lanes' lie in one bank."""
    banks: list[int] = []
    execute = Store.execute

    def seen(op: Store, warp: Any, *inputs: Any) -> Any:
        if op.space == "shared" and op.count == 1 and warp.index < WARPS_PER_WARPGROUP:
            banks.append(len(np.unique(inputs[0] // 4 % 32)))
        return execute(op, warp, *inputs)

    monkeypatch.setattr(Store, "execute", seen)
    for name in ("one-part", "short-step"):
        check(rng, problem_of("2:8@128", **E4M3), (128, 60, 300), TURNED[name])
    assert len(banks) > 100 and set(banks) == {32}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("pattern", ["2:8@128", "4:8@64"])
@pytest.mark.parametrize("element", ["bf16", "e4m3"])
def test_whatever_completes_first(rng: np.random.Generator, element: str, pattern: str, order: str) -> None:
    problem = problem_of(pattern, a=element, b=element, out="f32", kind="linear", bias="row")
    check(rng, problem, (200, 130, 1100), NARROWS[element].changed(stages=2), ORDERS[order])


@pytest.mark.parametrize("size", [1, 7, 9, 16, 63, 65, 127, 129, 257])
@pytest.mark.parametrize("element", ["f16", "e4m3"])
def test_tails(rng: np.random.Generator, element: str, size: int) -> None:
    for sizes in ((size, 65, 300), (65, size, 300), (65, 65, size)):
        problem = problem_of("3:8@64", a=element, b=element, out="f32")
        check(rng, problem, sizes, NARROWS[element].changed(stages=2))


@pytest.mark.parametrize("element", ["f16", "e4m3"])
@pytest.mark.parametrize("n", [48, 50])
def test_rows_that_no_list_names_are_not_read(rng: np.random.Generator, element: str, n: int) -> None:
    """Nor what is behind the columns of N: the first rows of K are NaN, and no window names them."""
    given, schedule = vectors(rng, 128, 512, "2:8@64", element), NARROWS[element]
    windows = np.where(given.windows < 8, given.windows + 1024, given.windows)
    values = np.where(np.repeat(windows, 64, axis=0) >= 512, 0, given.values).astype(given.values.dtype)
    b = rng.integers(-4, 5, (512, n)).astype(values.dtype)
    expected, _ = exact_product(np.where(np.arange(512) < 8, 0, given.a), b)
    b[:8] = math.nan
    changed = type(given)(given.pattern, values, windows, given.a)
    problem = problem_of("2:8@64", a=element, b=element)
    y, _ = emulate(compile_product(problem, schedule), changed.rows(schedule), b)
    np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("batch", ["dense", "both"])
@pytest.mark.parametrize("element", ["f16", "s8"])
def test_batches(rng: np.random.Generator, element: str, batch: Any) -> None:
    problem, schedule = problem_of("2:8@64", a=element, b=element, batch=batch), NARROWS[element]
    given = [vectors(rng, 200, 300, "2:8@64", element) for _ in range(2)]
    b = rng.integers(-4, 5, (2, 300, 70)).astype(element_type(element).numpy)
    parts = [each.rows(schedule) for each in given]
    rows, a = parts[0], [given[0].a, given[0].a]
    if batch == "both":
        values, lists = np.stack([p.values for p in parts]), np.concatenate([p.lists for p in parts])
        rows, a = GatheredRows(values, lists, rows.list_rows, 300), [each.a for each in given]
    y, _ = emulate(compile_product(problem, schedule), rows, b, sm_count=3)
    for entry in range(2):
        expected, _ = exact_product(a[entry], b[entry])
        np.testing.assert_array_equal(y[entry].astype(np.float64), expected)


@pytest.mark.parametrize("n", [64, 256, 4096])
@pytest.mark.parametrize("pattern", ["4:8@256", "4:8@128", "4:8@64", "2:8@32"])
@pytest.mark.parametrize("element", ["bf16", "f32", "e4m3", "s8"])
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
        ({"tile_n": 96}, "64 columns of 128 rows, got tile_n 96: use a multiple of 64"),
        ({"tile_k": 64}, "128 columns of 64 rows, got tile_n 64: use a multiple of 128"),
        ({"tile_k": 16}, "tile_k of e4m3 is 32 or 64 or 128, got 16"),
        ({"tile_m": 256, "tile_n": 256, "stages": 2}, "use a smaller tile"),
    ],
)
def test_schedules_that_cannot_turn_rows(changed: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        compile_product(problem_of("2:8@64", **E4M3), TURNED["one-part"].changed(**changed))


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


@pytest.mark.parametrize("element", ["f16", "f32", "e4m3"])
def test_windows_that_keep_rows_past_k_alone(rng: np.random.Generator, element: str) -> None:
    pattern, schedule = Pattern.parse("2:22@16"), LANES if element == "f32" else NARROWS[element]
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
