"""Products of V:N:M on the emulator, rows of K gathered and values lifted: exact, of every structure and way of metadata."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from louver.choose.configure import choose
from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule, list_rows
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.formats.compress import from_indices
from louver.formats.dtypes import element_type
from louver.formats.lists import gathered
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from louver.library.reference import exact_product
from louver.ptx.assembler import assemble
from support.gathered import shared
from support.products import LARGEST, paired

pytestmark = pytest.mark.sampled(7, every=2)

NARROW = Schedule.of(tile_n=64, stages=3)

SCHEDULES = {
    "narrow": NARROW,
    "staged": NARROW.changed(metadata="stage"),
    "on-barriers": NARROW.changed(metadata="barrier"),
    "spans-of-64": NARROW.changed(tile_n=32, metadata="stage"),
    "spans-of-32": NARROW.changed(tile_n=16, stages=4),
    "three-boxes": NARROW.changed(tile_n=192, stages=2),
    "wide-step": NARROW.changed(tile_k=128, stages=2),
    "wide-staged": NARROW.changed(tile_k=128, stages=2, metadata="stage"),
    "two-blocks": NARROW.changed(tile_m=128, consumers=1, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, consumers=3),
    "one-consumer": NARROW.changed(tile_m=64, consumers=1, stages=1, in_flight=0),
    "one-staged": NARROW.changed(tile_m=64, consumers=1, metadata="stage"),
    "bulk": NARROW.changed(store="bulk", staging=32),
    "ranges": NARROW.changed(work="ranges"),
    "staged-ranges": NARROW.changed(work="ranges", metadata="stage"),
    "pairs": NARROW.changed(work="pairs"),
    "staged-pairs": NARROW.changed(work="pairs", metadata="stage", store="bulk", staging=32),
    "dependent": NARROW.changed(dependent=True),
    "staged-dependent": NARROW.changed(dependent=True, metadata="stage"),
}

PATTERNS = ("2:8@V128", "2:5@V64", "2:16@V384", "2:256@V192", "2:6@V32", "2:9@V33")
"""A list for a tile and for a warpgroup; windows longer than the matrix; groups longer than a step; lists of several windows, and of parts."""

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}


def problem_of(pattern: str, **options: Any) -> Problem:
    return Problem(**{"kind": "matmul", "pattern": pattern, "b_layout": "n_major", **options})


def check(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order = ORDERS["seeded"],
) -> None:
    m, n, k = sizes
    assert problem.pattern is not None
    s, a = shared(rng, (m, k), problem.pattern, problem.a)
    b = rng.integers(0 if problem.b == "u8" else -LARGEST, LARGEST + 1, (k, n)).astype(element_type(problem.b).numpy)
    bias = rng.integers(-LARGEST, LARGEST + 1, m).astype(a.dtype) if problem.bias else None
    tiles, steps = -(-m // schedule.tile.m) * -(-n // schedule.tile.n), 256 // schedule.tile.k
    depth = gathered(s, list_rows(problem.pattern, schedule)).kept * 2
    ranges = Ranges(tiles, 1, -(-depth // 256), steps) if schedule.cuts else None
    ranges = paired(tiles, -(-depth // schedule.tile.k), steps) if schedule.pairs else ranges
    y, report = emulate(compile_product(problem, schedule), s, b, bias, sm_count=4, order=order, ranges=ranges)
    assert report.products
    expected, _ = exact_product(a, b, bias)
    got = y.T if problem.kind == "linear" else y
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_pattern(rng: np.random.Generator, name: str, pattern: str) -> None:
    schedule = SCHEDULES[name]
    check(rng, problem_of(pattern), (264, 72, 1030 if schedule.cuts else 508), schedule)


EIGHT_BITS = {
    "narrow": NARROW.changed(tile_k=128),
    "staged": NARROW.changed(tile_k=128, stages=2, metadata="stage"),
    "one-consumer": NARROW.changed(tile_m=64, tile_k=128, consumers=1, stages=2),
    "ranges": NARROW.changed(tile_k=128, stages=2, work="ranges"),
    "pairs": NARROW.changed(tile_k=128, stages=2, work="pairs"),
    "dependent": NARROW.changed(tile_k=128, stages=2, dependent=True, metadata="stage"),
}


@pytest.mark.parametrize("pattern", ["2:8@V128", "2:5@V64", "2:9@V33"])
@pytest.mark.parametrize("name", EIGHT_BITS)
def test_rows_of_8_bits_are_turned_and_lifted(rng: np.random.Generator, name: str, pattern: str) -> None:
    schedule = EIGHT_BITS[name]
    problem = problem_of(pattern, a="s8", b="u8" if name == "narrow" else "s8", out="s32")
    check(rng, problem, (264, 72, 1030 if schedule.cuts else 508), schedule)


@pytest.mark.parametrize("accumulate", ["f32", "promoted", "f16"])
def test_8_bit_floats_with_every_sum(rng: np.random.Generator, accumulate: str) -> None:
    problem = problem_of("2:8@V64", a="e4m3", b="e4m3", out="f16", accumulate=accumulate)
    check(rng, problem, (200, 72, 1100), EIGHT_BITS["staged"])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("metadata", ["global", "stage", "barrier"])
def test_whatever_completes_first(rng: np.random.Generator, metadata: str, order: str) -> None:
    problem = problem_of("2:8@V64", a="bf16", b="bf16", out="f32", kind="linear", bias="row")
    check(rng, problem, (200, 130, 1100), NARROW.changed(stages=2, metadata=metadata), ORDERS[order])


@pytest.mark.parametrize("size", [1, 7, 9, 63, 65, 127, 129, 257])
def test_tails(rng: np.random.Generator, size: int) -> None:
    schedule = NARROW.changed(stages=2, metadata="stage" if size % 4 == 1 else "global")
    for sizes in ((size, 65, 300), (65, size, 300), (65, 65, size)):
        check(rng, problem_of("2:6@V64", out="f32"), sizes, schedule)


@pytest.mark.parametrize("metadata", ["global", "stage"])
@pytest.mark.parametrize("batch", ["dense", "both", "sparse"])
def test_batches(rng: np.random.Generator, batch: Any, metadata: str) -> None:
    problem = problem_of("2:8@V64", batch=batch)
    s, a = shared(rng, (200, 300) if batch == "dense" else (2, 200, 300), "2:8@V64")
    b = rng.integers(-4, 5, (300, 70) if batch == "sparse" else (2, 300, 70)).astype(np.float16)
    y, _ = emulate(compile_product(problem, NARROW.changed(metadata=metadata)), s, b, sm_count=3)
    for entry in range(2):
        expected, _ = exact_product(a if a.ndim == 2 else a[entry], b if b.ndim == 2 else b[entry])
        np.testing.assert_array_equal(y[entry].astype(np.float64), expected)


def test_rows_that_no_list_names_are_not_read(rng: np.random.Generator) -> None:
    """The first rows of K are NaN, and no window keeps them."""
    s, _ = shared(rng, (128, 512), "2:8@V64")
    indices = s.unpacked_indices() % 4 + 4
    indices[:, 1::2] = np.where(indices[:, 1::2] == indices[:, ::2], indices[:, ::2] ^ 1, indices[:, 1::2])
    s = from_indices(s.values, indices, s.pattern, s.shape)
    b = rng.integers(-4, 5, (512, 50)).astype(np.float16)
    expected, _ = exact_product(s.dense(), b)
    b[np.arange(512) % 8 < 4] = math.nan
    y, _ = emulate(compile_product(problem_of("2:8@V64"), NARROW), s, b)
    np.testing.assert_array_equal(y.astype(np.float64), expected)


@pytest.mark.parametrize("n", [16, 64, 256, 4096])
@pytest.mark.parametrize("pattern", ["2:8@V256", "2:8@V128", "2:5@V64", "2:16@V48"])
@pytest.mark.parametrize("kind", ["matmul", "linear"])
@pytest.mark.parametrize("element", ["bf16", "e4m3"])
def test_what_the_model_chooses_assembles_without_spills(pattern: str, n: int, kind: Any, element: str) -> None:
    problem = problem_of(pattern, a=element, b=element, out="bf16", kind=kind, bias="row")
    for cuts in (False, True):
        schedule = choose(problem, 4096, n, SM_90A, 132, aligned_output=True, cuts=cuts)
        assembly = assemble(compile_product(problem, schedule).ptx, "sm_90a")
        assert assembly.clean, assembly.faults


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="gathered rows are no multicast, got cluster 2"):
        compile_product(problem_of("2:8@V64"), NARROW.changed(cluster=2))
    with pytest.raises(ValueError, match="and of f32 for 1:2, N:M, N:M@L, got 2:8@V64 f32"):
        problem_of("2:8@V64", a="f32", b="f32", out="f32")
