"""Schedules and problems of products that cut K, and orders of the emulator."""

from __future__ import annotations

import numpy as np

from louver.choose.ranges import Ranges
from louver.compile.pipeline import compile_product
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support.products import assert_exact, operands

NARROW = Schedule.of(tile_n=32, stages=3)

STRUCTURES = {
    "narrow": NARROW,
    "wide-step": NARROW.changed(tile_k=128, stages=2),
    "two-blocks": NARROW.changed(tile_m=256, stages=2),
    "three-consumers": NARROW.changed(tile_m=192, tile_n=48, consumers=3),
    "bulk": NARROW.changed(tile_n=64, store="bulk"),
    "chunks": NARROW.changed(tile_n=128, store="bulk", staging=32),
    "narrower-chunk": NARROW.changed(tile_n=128, store="bulk", staging=48),
    "drained": NARROW.changed(in_flight=0),
    "stage": NARROW.changed(metadata="stage"),
    "barrier": NARROW.changed(metadata="barrier", tile_k=128, stages=2),
    "alone": NARROW.changed(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0),
}

TYPES = {
    "f16": Problem("linear", bias="row"),
    "f16-sums": Problem("linear", accumulate="f16"),
    "fp8": Problem("linear", "e4m3", "e5m2", "f16", bias="row"),
    "promoted": Problem("linear", "e4m3", "e4m3", "f32", accumulate="promoted"),
    "int8": Problem("linear", "s8", "u8", "s32"),
}

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}


def check_exact(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order,
    ranges: Ranges,
    sm_count: int,
) -> None:
    """A product of integers whose K is cut so, on the emulator."""
    m, n, k = sizes
    given = operands(rng, m, n, k, problem.a, dense=problem.b, bias=problem.bias_element)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    compiled, bias = compile_product(problem, schedule), given.bias if problem.bias else None
    y, report = emulate(compiled, given.s, dense, bias, sm_count=sm_count, order=order, ranges=ranges)
    assert report.products > 0
    assert_exact(y.T if problem.kind == "linear" else y, given, bias=problem.bias is not None)
