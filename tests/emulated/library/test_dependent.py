"""Products whose launches begin while others end, on the emulator: exact, and nothing else touched before the wait, in every structure."""

from __future__ import annotations

import numpy as np
import pytest

import louver
from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.fused import EPILOGUES, fused_operands
from support.products import assert_exact, operands

pytestmark = pytest.mark.sampled(7, every=3)

FOLLOWING = Schedule.of(tile_n=16, stages=3, metadata="stage", resident=2, dependent=True)

SCHEDULES = {
    "stage": FOLLOWING,
    "narrowest": FOLLOWING.changed(tile_n=8),
    "quarter": FOLLOWING.changed(resident=4),
    "whole": FOLLOWING.changed(resident=1, tile_n=64, store="bulk"),
    "registers": FOLLOWING.changed(metadata="global"),
    "barrier": FOLLOWING.changed(metadata="barrier", tile_k=128),
    "wide-step": FOLLOWING.changed(tile_k=128),
    "one-consumer": FOLLOWING.changed(tile_m=64, consumers=1),
    "two-blocks": FOLLOWING.changed(consumers=1),
    "three-consumers": FOLLOWING.changed(tile_m=192, tile_n=48, consumers=3),
    "bulk": FOLLOWING.changed(tile_n=64, store="bulk", l2="values"),
    "cluster": FOLLOWING.changed(tile_n=64, cluster=2, store="bulk"),
    "ranges": FOLLOWING.changed(work="ranges"),
    "ranges-cluster": FOLLOWING.changed(tile_n=64, cluster=2, work="ranges", metadata="global"),
    "alone": FOLLOWING.changed(tile_m=64, consumers=1, stages=1, specialized=False, in_flight=0),
}

TYPES = {
    "f16": Problem("linear", bias="row"),
    "fp8": Problem("linear", "e4m3", "e5m2", "f16", bias="row"),
    "promoted": Problem("matmul", "e4m3", "e4m3", "f32", accumulate="promoted"),
    "int8": Problem("linear", "s8", "u8", "s32"),
    "n-major": Problem("matmul", "bf16", "bf16", "f32", b_layout="n_major"),
}

ORDERS: dict[str, Order] = {"earliest": Earliest(), "latest": Latest(), "seeded": Seeded(5)}


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_structure_and_type(rng: np.random.Generator, name: str, types: str) -> None:
    problem, schedule = TYPES[types], SCHEDULES[name]
    if problem.a not in ("f16", "bf16"):
        schedule = schedule.changed(tile_k=128)
    if problem.b_layout == "n_major":
        # The registers that a CTA begins with hold the sums of one product.
        wide = {"tile_n": 128, "resident": 1} if schedule.order.cluster > 1 else {"tile_n": 32}
        narrow = {"tile_n": 16} if schedule.occupancy.resident == 4 else wide
        schedule = schedule.changed(**narrow, store="direct")
    given = operands(rng, 200, 40, 700, problem.a, dense=problem.b, bias=problem.bias_element)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    bias = given.bias if problem.bias else None
    y, report = emulate(compiled_product(problem, schedule), given.s, dense, bias, sm_count=3, order=Seeded(7))
    assert report.instructions["griddepcontrol.wait"] and report.instructions["griddepcontrol.launch_dependents"]
    assert_exact(y.T if problem.kind == "linear" else y, given, bias=problem.bias is not None)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [1, 65, 256, 257, 1030])
def test_every_tail_of_k(rng: np.random.Generator, k: int, order: str) -> None:
    given = operands(rng, 65, 9, k)
    y, _ = emulate(
        compiled_product(Problem("matmul", out="f32"), FOLLOWING), given.s, given.b.T, order=ORDERS[order], sm_count=1
    )
    assert_exact(y, given)


@pytest.mark.sampled(7, every=2)
@pytest.mark.parametrize("store", ["direct", "bulk"])
@pytest.mark.parametrize("name", EPILOGUES)
def test_every_option_is_read_after_the_wait(rng: np.random.Generator, name: str, store: str) -> None:
    """Vectors, numbers in memory and arrays: kernels before this one may write all of them."""
    problem = Problem("linear", "bf16", "bf16", "f16", bias="row", epilogue=EPILOGUES[name])
    given = fused_operands(rng, problem, 208, 72, 70)
    compiled = compiled_product(problem, FOLLOWING.changed(tile_n=64, store=store))
    y, _ = emulate(compiled, given.s, given.b.T, given.bias, given.for_kernel, sm_count=2, order=Latest())
    given.assert_close(y.T)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", ["stage", "cluster", "ranges"])
def test_a_batch(rng: np.random.Generator, name: str) -> None:
    problem = Problem("matmul", out="f32", batch="both")
    a = louver.prune(rng.integers(-4, 5, (3, 130, 520)).astype(np.float16), "2:4")
    b = rng.integers(-4, 5, (3, 40, 520)).astype(np.float16)
    compiled = compiled_product(problem, SCHEDULES[name].changed(store="direct"))
    y, _ = emulate(compiled, louver.compress(a, "2:4"), b, sm_count=4, order=Seeded(1))
    np.testing.assert_array_equal(y, a.astype(np.float64) @ b.swapaxes(1, 2).astype(np.float64))
