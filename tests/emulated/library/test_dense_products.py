"""Products of two dense operands, by the generator of sparse ones, on the emulator: exact, of every type, store and structure."""

from __future__ import annotations

import numpy as np
import pytest

from louver.choose.configure import choose
from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Seeded
from louver.formats.dtypes import element_type
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.emulate import emulate
from louver.library.reference import exact_product
from louver.ptx.assembler import assemble
from support.products import LARGEST, paired

pytestmark = pytest.mark.sampled(7, every=4)

NARROW = Schedule.of(tile_n=32, stages=3)

SCHEDULES = {
    "narrow": NARROW,
    "narrowest": NARROW.changed(tile_n=8),
    "two-blocks": NARROW.changed(tile_m=256, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, tile_n=48, consumers=3),
    "bulk": NARROW.changed(tile_n=64, store="bulk", staging=32),
    "drained": NARROW.changed(in_flight=0),
    "alone": NARROW.changed(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0),
    "cluster": NARROW.changed(tile_n=64, cluster=2),
    "ranges": NARROW.changed(work="ranges"),
    "pairs": NARROW.changed(work="pairs"),
}

TYPES = {
    "f16": Problem("linear", pattern=None, bias="row"),
    "f16-sums": Problem("linear", pattern=None, accumulate="f16"),
    "fp8": Problem("linear", "e4m3", "e5m2", "f16", pattern=None),
    "promoted": Problem("linear", "e4m3", "e4m3", "f32", pattern=None, accumulate="promoted"),
    "int8": Problem("linear", "s8", "u8", "s32", pattern=None),
}


def check(rng: np.random.Generator, problem: Problem, sizes: tuple[int, int, int], schedule: Schedule) -> None:
    m, n, k = sizes

    def draw(element: str, *shape: int) -> np.ndarray:
        return rng.integers(0 if element == "u8" else -LARGEST, LARGEST + 1, shape).astype(element_type(element).numpy)

    a, b = draw(problem.a, m, k), draw(problem.b, k, n)
    bias = draw(problem.bias_element, m) if problem.bias else None
    dense = np.ascontiguousarray(b.T) if problem.b_layout == "k_major" else b
    # Two ranges of each tile but one, of any number of steps.
    steps = -(-k // schedule.tile.k)
    tiles = -(-m // (schedule.tile.m * schedule.order.cluster)) * -(-n // schedule.tile.n)
    ranges = Ranges(tiles, 1, min(steps, 2), -(-steps // 2)) if schedule.cuts else None
    ranges = paired(tiles, steps) if schedule.pairs else ranges
    y, report = emulate(compile_product(problem, schedule), a, dense, bias, sm_count=4, order=Seeded(3), ranges=ranges)
    assert report.products > 0
    expected, _ = exact_product(a, b, bias)
    got = y.T if problem.kind == "linear" else y
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(y.dtype).astype(np.float64))


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_type(rng: np.random.Generator, name: str, types: str) -> None:
    problem, schedule = TYPES[types], SCHEDULES[name]
    if element_type(problem.a).bits == 8:
        schedule = schedule.changed(tile_k=128, stages=min(2, schedule.ring.stages))
    check(rng, problem, (264, 72, 908), schedule)


@pytest.mark.parametrize("tile_k", [64, 128])
@pytest.mark.parametrize("size", [1, 63, 65, 127, 129, 511])
def test_tails_of_an_n_major_operand(rng: np.random.Generator, tile_k: int, size: int) -> None:
    problem = Problem("matmul", "bf16", "bf16", "f32", pattern=None, b_layout="n_major")
    schedule = Schedule.of(tile_n=64, tile_k=tile_k, stages=2)
    for sizes in ((size, 65, 65), (65, size, 65), (65, 65, size)):
        check(rng, problem, sizes, schedule)


@pytest.mark.parametrize("n", [16, 256, 4096])
@pytest.mark.parametrize("element", ["bf16", "e4m3"])
def test_what_the_model_chooses_assembles_without_spills(element: str, n: int) -> None:
    problem = Problem("linear", element, element, "bf16", pattern=None)
    schedule = choose(problem, 4096, n, SM_90A, 132, aligned_output=True)
    assembly = assemble(compile_product(problem, schedule).ptx, "sm_90a")
    assert assembly.clean, assembly.faults


def test_stages_hold_no_metadata_of_dense_operands() -> None:
    with pytest.raises(
        ValueError, match="stages hold metadata of 2:4 operands, and rows to pick of f32, got 'stage' for None"
    ):
        compile_product(TYPES["f16"], NARROW.changed(metadata="stage"))
