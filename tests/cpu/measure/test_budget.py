from __future__ import annotations

from itertools import pairwise

import pytest

from louver.measure.protocol import FINISH_SECONDS, Budget, spread_out


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def spend(budget: Budget, clock: Clock, seconds: float) -> float:
    with budget.spending() as spent:
        clock.now += seconds
    return spent.seconds


def test_stops_where_one_more_part_might_not_end_in_time() -> None:
    clock = Clock()
    budget = Budget(50 + FINISH_SECONDS, clock)
    assert budget.suffices()
    assert spend(budget, clock, 20) == 20
    assert budget.suffices()
    assert spend(budget, clock, 5) == 5
    assert budget.suffices()
    spend(budget, clock, 6)
    assert not budget.suffices()


def test_without_a_limit_there_is_always_time() -> None:
    clock = Clock()
    budget = Budget(None, clock)
    spend(budget, clock, 1e9)
    assert budget.suffices()


@pytest.mark.parametrize("seconds", [0.0, -3.0, float("nan")])
def test_a_budget_is_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds, got"):
        Budget(seconds)


@pytest.mark.parametrize("count", [0, 1, 2, 45, 88])
def test_the_first_problems_are_spread_over_all(count: int) -> None:
    order = spread_out(count)
    assert sorted(order) == list(range(count))
    for first in range(4, count):
        gaps = [b - a for a, b in pairwise(sorted(order[:first]))]
        assert max(gaps) <= 4 * count / first
