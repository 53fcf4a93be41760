"""A whole sparse product on the emulator: results, speed, and every piece of its synchronisation taken out."""

from __future__ import annotations

import numpy as np
import pytest

from louver.emulator import EmulationError
from louver.ptx.module import While
from support.emulated import ORDERS, every_order
from support.removal import removals, survey, undetected
from support.ring_gemm import Case, build


@every_order
@pytest.mark.parametrize(
    ("m", "n", "k", "tile_n", "stages"),
    [(128, 64, 256, 64, 2), (100, 50, 200, 64, 2), (65, 129, 68, 64, 3), (128, 96, 64, 96, 1), (7, 3, 500, 32, 4)],
)
def test_a_sparse_product(rng, order, m, n, k, tile_n, stages):
    case = Case(rng, m, n, k, tile_n)
    report = case.bench().run(build(tile_n, stages), order, case.grid)
    case.check()
    assert report.products == 2 * 2 * -(-k // 64) * case.grid


def test_128_by_256_by_256(rng):
    case = Case(rng, 128, 256, 256, 256)
    one = build(256, 2)
    for order in ORDERS:
        case.bench().run(one, order, case.grid)
        case.check()


def test_every_removal_is_detected(rng):
    case = Case(rng, 96, 64, 5 * 64, 32)
    one = build(32, 2)

    def attempt(kernel, order):
        case.bench().run(kernel, order, case.grid)
        case.check()

    for order in ORDERS:
        attempt(one, order)
    report = case.bench().run(one, ORDERS[0], case.grid)
    assert {removal.position for removal in removals(one)} <= report.executed | _loops(one)
    outcomes = survey(one, attempt)
    whats = [str(outcome.removal) for outcome in outcomes]
    assert len(whats) == 18
    assert [str(removal) for removal in undetected(outcomes)] == []


def _loops(kernel):
    return {position for position, node in enumerate(kernel.body.walk()) if isinstance(node, While)}


def test_every_removal_is_detected_in_the_luckiest_order(rng):
    """Clocks find what the run's order of events hides."""
    case = Case(rng, 96, 64, 5 * 64, 32)

    def attempt(kernel, order):
        case.bench().run(kernel, order, case.grid)
        case.check()

    outcomes = survey(build(32, 2), attempt, ORDERS[:1])
    assert [str(removal) for removal in undetected(outcomes)] == []


def test_removals_leave_the_kernel_alone_and_differ_by_one_node(rng):
    one = build(32, 2)
    size = sum(1 for _ in one.body.walk())
    sizes = [sum(1 for _ in removal.kernel.body.walk()) for removal in removals(one)]
    assert set(sizes) <= {size, size - 1, size - 2}
    assert sum(1 for _ in one.body.walk()) == size


def test_survey_names_what_nobody_noticed(rng):
    case = Case(rng, 96, 32, 64, 32)
    one = build(32, 2)
    outcomes = survey(one, lambda kernel, order: None)
    assert len(undetected(outcomes)) == len(outcomes)

    def fail(kernel, order):
        raise EmulationError("found\nsecond line")

    assert {outcome.report for outcome in survey(one, fail)} == {"EmulationError: found"}
    wrong = survey(one, lambda kernel, order: np.testing.assert_array_equal(case.expected, 7))
    assert not undetected(wrong)
