"""Polynomials against evaluation at random points."""

from __future__ import annotations

import math

import numpy as np

from louver.analysis.polynomial import ONE, Polynomial, divide, multiply


def value(polynomial: Polynomial, at: dict[str, int]) -> int:
    return sum(
        factor * math.prod(at[str(atom)] ** power for atom, power in monomial) for monomial, factor in polynomial
    )


def test_arithmetic_is_that_of_integers(rng: np.random.Generator) -> None:
    at = {name: int(rng.integers(-9, 10)) for name in "abc"}
    known = [Polynomial.atom(name) for name in at] + [Polynomial.number(int(n)) for n in rng.integers(-5, 6, 3)]
    for _ in range(100):
        one, two = (known[int(i)] for i in rng.integers(0, len(known), 2))
        assert value(one + two, at) == value(one, at) + value(two, at)
        assert value(one - two, at) == value(one, at) - value(two, at)
        assert value(one * two, at) == value(one, at) * value(two, at)
        if len((one * two).terms) < 30:
            known.append(one * two + two)
        if len(known) > 20:
            known = known[:6]


def test_equal_polynomials_are_equal_however_they_were_made() -> None:
    a, b, two = Polynomial.atom("a"), Polynomial.atom("b"), Polynomial.number(2)
    assert (a + b) * (a + b) == a * a + two * a * b + b * b
    assert hash((a + b) * two) == hash(two * b + a + a)
    assert not a - a and (a - a).constant == 0
    assert two.constant == 2 and (a + two).constant is None
    assert (a * b + two).atoms == {"a", "b"} and (a + two).coefficient(ONE) == 2


def test_monomials_divide() -> None:
    ((ab, _),) = Polynomial.atom("a") * Polynomial.atom("b")
    ((a, _),) = Polynomial.atom("a")
    ((b, _),) = Polynomial.atom("b")
    assert divide(ab, a) == b and divide(ab, ONE) == ab and divide(a, a) == ONE
    assert divide(a, b) is None and multiply(a, b) == ab
