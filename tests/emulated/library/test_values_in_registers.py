"""Schedules whose products read the sparse operand's values from registers, on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from louver.compile.plan.schedule import Schedule
from louver.emulator import Earliest, Latest, Order, Seeded
from louver.frontend.problem import Problem
from louver.isa.targets import SM_90A
from louver.library.configure import deepest
from louver.library.emulate import emulate
from support.compiled import compiled_product
from support.products import assert_exact, operands

pytestmark = pytest.mark.sampled(6)

REGISTERS = Schedule.of(tile_n=32, stages=3, values="registers")

SCHEDULES = {
    "plain": REGISTERS,
    "wide-step": REGISTERS.changed(tile_k=128, stages=2),
    "two-blocks": REGISTERS.changed(tile_m=256, tile_n=64, stages=2),
    "bulk": REGISTERS.changed(tile_n=64, store="bulk"),
    "cluster": REGISTERS.changed(tile_n=64, cluster=2),
    "three-consumers": REGISTERS.changed(tile_m=192, tile_n=48, consumers=3),
}


def check(
    rng: np.random.Generator,
    problem: Problem,
    sizes: tuple[int, int, int],
    schedule: Schedule,
    order: Order,
    sm_count: int = 2,
) -> None:
    given = operands(rng, *sizes, problem.a, dense=problem.b, bias=problem.bias_element)
    dense = given.b.T if problem.b_layout == "k_major" else given.b
    bias = given.bias if problem.bias else None
    y, report = emulate(compiled_product(problem, schedule), given.s, dense, bias, sm_count=sm_count, order=order)
    assert report.products > 0
    assert_exact(y.T if problem.kind == "linear" else y, given, bias=problem.bias is not None)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("a", "b"), [("f16", "f16"), ("e4m3", "e5m2"), ("s8", "u8")])
def test_every_structure_and_type(rng: np.random.Generator, name: str, a: str, b: str) -> None:
    # Several tiles and rounds of the ring a CTA; rows of whole chunks for the bulk stores; tails of M, N and K.
    problem = Problem("linear", a, b, "f16", bias="row" if a != "s8" else None)
    check(rng, problem, (392, 136, 1220), SCHEDULES[name], Seeded(7))


@pytest.mark.parametrize("k", [1, 63, 64, 65, 129, 255, 256, 257, 448, 511, 512, 513, 576, 1025])
@pytest.mark.parametrize("order", [Earliest(), Latest()], ids=["earliest", "latest"])
def test_every_tail_of_k(rng: np.random.Generator, k: int, order: Order) -> None:
    check(rng, Problem("matmul", out="f32"), (65, 9, k), REGISTERS.changed(tile_n=16), order)


@pytest.mark.parametrize("m", [1, 63, 64, 65, 127, 129, 200])
def test_every_tail_of_m(rng: np.random.Generator, m: int) -> None:
    schedule = deepest(Problem(), REGISTERS.changed(tile_n=64), SM_90A)
    check(rng, Problem("matmul", b_layout="n_major"), (m, 40, 130), schedule, Seeded(m))
