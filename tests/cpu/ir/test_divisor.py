"""Exact divisions by a multiplication and a shift."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from louver.ir.computed import MOST_DIVIDED, MULTIPLIER, SHIFT, Divisor


def holds(value: int, numbers: list[int]) -> None:
    divisor = Divisor(value)
    assert 31 <= divisor.shift <= 62 and 0 < divisor.multiplier < 1 << 32
    for number in numbers:
        if 0 <= number <= MOST_DIVIDED:
            assert number * divisor.multiplier >> divisor.shift == number // value


def ends(value: int) -> list[int]:
    """Numbers around multiples of a divisor. The last ones are those with the greatest error."""
    most = MOST_DIVIDED // value
    return [times * value + more for times in (0, 1, 2, most - 1, most, most + 1) for more in (-1, 0, 1, value - 1)]


@given(st.integers(1, MOST_DIVIDED), st.lists(st.integers(0, MOST_DIVIDED)))
def test_any_numbers(value: int, numbers: list[int]) -> None:
    holds(value, [*numbers, *ends(value), MOST_DIVIDED])


def test_small_divisors_and_those_beside_powers_of_two() -> None:
    beside = [(1 << bit) + more for bit in range(1, 32) for more in (-1, 0, 1)]
    for value in [*range(1, 3000), *(each for each in beside if 1 <= each <= MOST_DIVIDED)]:
        holds(value, [*ends(value), MOST_DIVIDED])


def test_the_arguments_of_a_kernel() -> None:
    assert Divisor(7).numbers("w.K") == {"w.K" + MULTIPLIER: -(-(1 << 34) // 7), "w.K" + SHIFT: 34}


@pytest.mark.parametrize("value", [0, -1, 1 << 31])
def test_other_divisors_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match=f"divisors are 1 to 2147483647, got {value}"):
        Divisor(value)
