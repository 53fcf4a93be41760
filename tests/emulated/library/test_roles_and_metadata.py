"""Schedules without a producer, with metadata in the ring, and that wait for every step's products, on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.products import assert_exact, operands

ALONE = Schedule.of(tile_m=64, tile_n=32, consumers=1, stages=1, specialized=False, in_flight=0)
STAGE = Schedule.of(tile_n=32, stages=3, metadata="stage")
BARRIER = Schedule.of(tile_n=32, stages=3, metadata="barrier")

SCHEDULES = {
    "alone": ALONE,
    "alone-wide-step": ALONE.changed(tile_k=128),
    "alone-two-blocks": ALONE.changed(tile_m=128),
    "alone-stage": ALONE.changed(metadata="stage"),
    "alone-barrier": ALONE.changed(metadata="barrier", tile_k=128),
    "one-stage": ALONE.changed(specialized=True),
    "drained": Schedule.of(tile_n=32, stages=3, in_flight=0),
    "stage": STAGE,
    "stage-wide-step": STAGE.changed(tile_k=128, stages=2),
    "stage-two-blocks": STAGE.changed(tile_m=256, stages=2),
    "stage-drained": STAGE.changed(in_flight=0),
    "stage-bulk": STAGE.changed(tile_n=64, store="bulk"),
    "barrier": BARRIER,
    "barrier-wide-step": BARRIER.changed(tile_k=128, stages=2),
    "barrier-two-blocks": BARRIER.changed(tile_m=256, tile_k=128, stages=2),
    "barrier-drained": BARRIER.changed(in_flight=0, stages=2),
    "barrier-cluster": BARRIER.changed(tile_n=64, cluster=2),
    "barrier-three-consumers": BARRIER.changed(tile_m=192, tile_n=48, consumers=3),
}

TYPED = (
    "alone",
    "alone-barrier",
    "drained",
    "stage",
    "stage-wide-step",
    "barrier-two-blocks",
    "barrier-cluster",
)
"""Those that run with every kind of element."""


def check(
    rng: np.random.Generator, problem: Problem, sizes: tuple[int, int, int], schedule: Schedule, order: Order
) -> None:
    given = operands(rng, *sizes, problem.a, dense=problem.b, bias=problem.bias_element)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    bias = given.bias if problem.bias else None
    y, report = emulate(compiled_product(problem, schedule), given.s, dense, bias, sm_count=2, order=order)
    assert report.products > 0
    assert_exact(y.T if problem.kind == "linear" else y, given, bias=problem.bias is not None)


TYPES = {"f16": ("f16", "f16"), "fp8": ("e4m3", "e5m2"), "int8": ("s8", "u8")}
CASES = [(name, types) for name in SCHEDULES for types in (TYPES if name in TYPED else ["f16"])]


@pytest.mark.parametrize(("name", "types"), CASES)
def test_every_structure_and_type(rng: np.random.Generator, name: str, types: str) -> None:
    a, b = TYPES[types]
    # Several tiles and rounds of the ring a CTA; rows of whole chunks for the bulk stores; tails of M, N and K.
    problem = Problem("linear", a, b, "f16", bias="row" if a != "s8" else None)
    check(rng, problem, (264, 72, 1220), SCHEDULES[name], Seeded(7))


@pytest.mark.parametrize("k", [1, 63, 65, 129, 257, 513])
@pytest.mark.parametrize("order", [Earliest(), Latest()], ids=["earliest", "latest"])
@pytest.mark.parametrize("name", ["alone", "stage", "barrier-wide-step"])
def test_every_tail_of_k(rng: np.random.Generator, name: str, k: int, order: Order) -> None:
    check(rng, Problem("matmul", out="f32"), (65, 9, k), SCHEDULES[name].changed(tile_n=16), order)


@pytest.mark.parametrize("m", [1, 65, 200])
@pytest.mark.parametrize("name", ["alone", "stage-two-blocks", "barrier-cluster"])
def test_every_tail_of_m(rng: np.random.Generator, name: str, m: int) -> None:
    check(rng, Problem("matmul"), (m, 40, 130), SCHEDULES[name], Seeded(m))


@pytest.mark.parametrize("name", ["alone", "stage", "barrier"])
def test_a_dense_operand_that_is_contiguous_along_n(rng: np.random.Generator, name: str) -> None:
    schedule = SCHEDULES[name].changed(tile_n=64)
    check(rng, Problem("matmul", b_layout="n_major"), (130, 72, 328), schedule, Seeded(1))


def test_dense_operands_contiguous_along_n_in_clusters(rng: np.random.Generator) -> None:
    """Descriptors of such operands use all fields, into which a CTA's rank, part of its addresses, must not leak."""
    problem = Problem("matmul", b_layout="n_major")
    check(rng, problem, (264, 136, 200), Schedule.of(tile_n=128, stages=3, cluster=2), Seeded(7))
